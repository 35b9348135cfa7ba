// Our models in VS Code's own model picker, where the API exists (VS Code 1.104 and later).
//
// Owns the translation between VS Code's chat messages and chat completions. Text only: no tools, no pictures.
"use strict";

const vscode = require("vscode");

const VENDOR = "vivace";
const OUTPUT_TOKENS = 4096;
const CHARS_PER_TOKEN = 3.5; // of code, roughly; only for estimates

/** @param {import("./server").Server} server @returns {vscode.Disposable} */
function registerModels(server) {
  const lm = /** @type {any} */ (vscode.lm);
  if (!lm?.registerLanguageModelChatProvider) return new vscode.Disposable(() => {});
  return lm.registerLanguageModelChatProvider(VENDOR, {
    provideLanguageModelChatInformation: (/** @type {{ silent: boolean }} */ options) => information(server, options),
    provideLanguageModelChatResponse: (
      /** @type {{ id: string }} */ model,
      /** @type {any[]} */ messages,
      /** @type {unknown} */ _options,
      /** @type {{ report: (part: unknown) => void }} */ progress,
      /** @type {vscode.CancellationToken} */ token,
    ) => respond(server, model.id, messages, progress, token),
    provideTokenCount: async (/** @type {unknown} */ _model, /** @type {any} */ text) =>
      Math.ceil((typeof text === "string" ? text : textOf(text)).length / CHARS_PER_TOKEN),
  });
}

/** @param {import("./server").Server} server @param {{ silent: boolean }} options */
async function information(server, { silent }) {
  if (!silent) await server.ensure();
  if (!server.address) return [];
  const [models, status] = await Promise.all([json(server, "/v1/models"), json(server, "/v1/vivace/status")]);
  const window = status.engine.session_tokens || 16_384;
  return models.data.map((/** @type {{ id: string }} */ { id }) => ({
    id,
    name: id,
    family: id,
    version: status.version,
    maxInputTokens: Math.max(1024, window - OUTPUT_TOKENS),
    maxOutputTokens: OUTPUT_TOKENS,
    detail: "on this machine",
    capabilities: { toolCalling: false, imageInput: false },
  }));
}

/**
 * @param {import("./server").Server} server @param {string} model @param {any[]} messages
 * @param {{ report: (part: unknown) => void }} progress @param {vscode.CancellationToken} token
 */
async function respond(server, model, messages, progress, token) {
  await server.ensure();
  const leaving = new AbortController();
  const cancelled = token.onCancellationRequested(() => leaving.abort());
  try {
    const body = { model, messages: messages.map(translated), stream: true, max_completion_tokens: OUTPUT_TOKENS };
    const answer = await server.fetch("/v1/chat/completions", { body, signal: leaving.signal });
    for await (const chunk of events(answer)) {
      const text = chunk.choices?.[0]?.delta?.content;
      if (text) progress.report(new vscode.LanguageModelTextPart(text));
      if (chunk.error) throw new Error(chunk.error.message);
    }
  } finally {
    cancelled.dispose();
  }
}

/** @param {any} message */
function translated(message) {
  const isUser = message.role === vscode.LanguageModelChatMessageRole.User;
  return { role: isUser ? "user" : "assistant", content: textOf(message) };
}

/** Return the text parts of a message. @param {any} message @returns {string} */
function textOf(message) {
  const parts = Array.isArray(message.content) ? message.content : [message.content];
  return parts.map((/** @type {any} */ part) => (typeof part === "string" ? part : (part?.value ?? ""))).join("");
}

/** @param {import("./server").Server} server @param {string} route @returns {Promise<any>} */
async function json(server, route) {
  return (await server.fetch(route)).json();
}

/** Yield the objects of a server-sent stream. @param {Response} answer @returns {AsyncGenerator<any>} */
async function* events(answer) {
  const decoder = new TextDecoder();
  let pending = "";
  for await (const bytes of /** @type {any} */ (answer.body)) {
    pending += decoder.decode(bytes, { stream: true });
    const lines = pending.split("\n");
    pending = lines.pop() ?? "";
    for (const line of lines) {
      const data = line.startsWith("data:") ? line.slice(5).trim() : "";
      if (data && data !== "[DONE]") yield JSON.parse(data);
    }
  }
}

module.exports = { registerModels, textOf };
