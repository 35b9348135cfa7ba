// The side view: the browser app in a webview. It may reach nothing by itself; its frames pass through here.
//
// Owns the page's address, its policy, and the connection of each view. The app is a copy of what `vivace web` shows,
// put into the extension when that was built.
"use strict";

const fs = require("node:fs/promises");
const vscode = require("vscode");
const { openSocket } = require("./server/face");
const { themed } = require("./theme");

class View {
  /** @param {import("./server/server").Server} server @param {vscode.Uri} extension @param {() => string} folder */
  constructor(server, extension, folder) {
    this._server = server;
    this._page = vscode.Uri.joinPath(extension, "page");
    this._folder = folder;
  }

  /** @param {vscode.WebviewView} view */
  async resolveWebviewView(view) {
    view.webview.options = { enableScripts: true, localResourceRoots: [this._page] };
    const wire = new Wire(this._server, view.webview, this._folder);
    view.onDidDispose(() => wire.close());
    view.webview.onDidReceiveMessage((message) => wire.received(message));
    view.webview.html = await this._html(view.webview);
  }

  /** Return the app's page with addresses that a webview may load, and nothing else. @param {vscode.Webview} webview */
  async _html(webview) {
    const read = (/** @type {string} */ name) => fs.readFile(vscode.Uri.joinPath(this._page, name).fsPath, "utf-8");
    const [page, css] = await Promise.all([read("index.html"), read("app/app.css")]);
    const own = webview.cspSource;
    const policy = [
      "default-src 'none'",
      `script-src ${own}`,
      `style-src ${own} 'unsafe-inline'`, // CodeMirror writes its own style elements
      `img-src ${own}`,
      `font-src ${own}`,
    ].join("; ");
    const head = `<head><meta http-equiv="Content-Security-Policy" content="${policy}" />`;
    const address = (/** @type {string} */ path) => webview.asWebviewUri(vscode.Uri.joinPath(this._page, path));
    return page
      .replace("<head>", head)
      .replace(/(href|src)="([^":]+)"/g, (_, name, path) => `${name}="${address(path)}"`)
      .replace("</head>", `<style>${themed(css)}</style></head>`);
  }
}

/** The connection of one view. */
class Wire {
  /** @param {import("./server/server").Server} server @param {vscode.Webview} webview @param {() => string} folder */
  constructor(server, webview, folder) {
    this._server = server;
    this._webview = webview;
    this._folder = folder;
    /** @type {WebSocket | null} */
    this._socket = null;
  }

  /** @param {{ vivace: "open" | "frame" | "close", text?: string }} message */
  async received({ vivace, text }) {
    if (vivace === "open") await this._open();
    else if (vivace === "frame") this._socket?.send(this._named(text ?? ""));
    else this.close();
  }

  close() {
    this._socket?.close();
    this._socket = null;
  }

  async _open() {
    this.close();
    try {
      await this._server.ensure();
      const socket = await openSocket(this._server);
      this._socket = socket;
      socket.addEventListener("message", ({ data }) => this._post({ vivace: "frame", text: String(data) }));
      socket.addEventListener("close", () => socket === this._socket && this._post({ vivace: "closed", reason: "" }));
      this._post({ vivace: "opened" });
    } catch (error) {
      this._post({ vivace: "closed", reason: /** @type {Error} */ (error).message });
    }
  }

  /** Say in the greeting which face it is, and which folder is open here. @param {string} text */
  _named(text) {
    if (!text.includes('"hello"')) return text;
    const frame = JSON.parse(text);
    return frame.do === "hello" ? JSON.stringify({ ...frame, face: "VS Code", folder: this._folder() }) : text;
  }

  /** @param {object} message */
  _post(message) {
    void this._webview.postMessage(message);
  }
}

module.exports = { View };
