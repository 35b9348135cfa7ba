// Vivace in VS Code: the parts put together, and the commands that belong to none of them.
"use strict";

const vscode = require("vscode");
const { Completions } = require("./completions/completions");
const { Face } = require("./server/face");
const { askInstruction, placeOf } = require("./edits/instruction");
const { registerModels } = require("./server/models");
const { Review } = require("./edits/review");
const { Server, installedCommand } = require("./server/server");
const { Status } = require("./status");
const { View } = require("./view");

/** @param {vscode.ExtensionContext} context */
function activate(context) {
  const log = vscode.window.createOutputChannel("Vivace", { log: true });
  const command = () => {
    const given = vscode.workspace.getConfiguration("vivace").get("command", /** @type {string[]} */ ([]));
    return given.length ? given : installedCommand(context.extensionPath);
  };
  const server = new Server(command, (line) => log.info(line));
  const status = new Status(server);
  server.onChange = () => status.show();
  server.onGone = () =>
    void vscode.window.showWarningMessage("The Vivace server has ended. It starts again with the next command.");
  const folder = () => vscode.workspace.workspaceFolders?.[0]?.uri.fsPath ?? "";
  const face = new Face(server);
  const review = new Review(face, status);
  const completions = new Completions(
    server,
    (measured) => status.measured(measured),
    (line) => log.warn(line),
  );
  /** Run a command; say what went wrong with it. @param {string} name @param {() => Promise<unknown>} run */
  const on = (name, run) =>
    vscode.commands.registerCommand(name, () => run().catch((error) => complain(log, /** @type {Error} */ (error))));
  context.subscriptions.push(
    log,
    status,
    face,
    ...review.register(),
    vscode.languages.registerInlineCompletionItemProvider({ scheme: "file" }, completions),
    vscode.workspace.onDidChangeConfiguration((event) => event.affectsConfiguration("vivace") && status.show()),
    on("vivace.edit", () => edit(server, face, review)),
    on("vivace.start", () => start(server, status)),
    on("vivace.menu", () => menu()),
    on("vivace.toggleCompletions", toggleCompletions),
    on("vivace.showLog", async () => log.show()),
    registerModels(server),
    vscode.window.registerWebviewViewProvider("vivace.talk", new View(server, context.extensionUri, folder)),
  );
  void start(server, status).catch((error) => log.error(String(error))); // it is told when a command needs it
}

/** @param {Server} server @param {Status} status */
async function start(server, status) {
  await server.ensure();
  await status.refresh();
}

/** Ask for an instruction and begin, or turn around the edit that is being written. @param {Server} server @param {Face} face @param {Review} review */
async function edit(server, face, review) {
  const editor = vscode.window.activeTextEditor;
  if (!editor || editor.document.uri.scheme !== "file") {
    throw new Error("Open a file first: an edit needs one that is on this machine.");
  }
  const running = review.of(editor.document);
  const isSteer = running?.state === "writing";
  const place = placeOf(editor);
  void server.ensure().catch(() => {}); // while the user types
  const instruction = await askInstruction(face, editor.document, isSteer ? null : place);
  if (!instruction) return;
  if (isSteer && (await running.steer(instruction))) return;
  await server.ensure();
  const next = isSteer ? running.after(instruction) : { instruction, asked: place.asked };
  await review.begin(editor, next.instruction, next.asked);
}

async function toggleCompletions() {
  const settings = vscode.workspace.getConfiguration("vivace.completions");
  await settings.update("enabled", !settings.get("enabled"), vscode.ConfigurationTarget.Global);
}

async function menu() {
  const isOn = vscode.workspace.getConfiguration("vivace.completions").get("enabled");
  const items = [
    { label: "$(edit) Edit…", command: "vivace.edit" },
    { label: isOn ? "$(circle-slash) Turn completions off" : "$(check) Turn completions on", command: "vivace.toggleCompletions" },
    { label: "$(zap) Start the server", command: "vivace.start" },
    { label: "$(output) Show the log", command: "vivace.showLog" },
  ];
  const chosen = await vscode.window.showQuickPick(items, { title: "Vivace" });
  if (chosen) await vscode.commands.executeCommand(chosen.command);
}

/** @param {vscode.LogOutputChannel} log @param {Error} error */
async function complain(log, error) {
  log.error(error.stack ?? error.message);
  if ((await vscode.window.showErrorMessage(`Vivace: ${error.message}`, "Show the Log")) === "Show the Log") log.show();
}

module.exports = { activate, deactivate: () => {} };
