// Ghost text: asks the server for what belongs at the cursor (`/v1/completions` with a suffix).
//
// Owns when to ask: after a short rest, once at a time, given up at the next key. Files only: the chat input and
// other documents have nothing to be completed from. Comments and strings are completed like code.
"use strict";

const vscode = require("vscode");
const { Suggestions, extent, tidied } = require("./suggestions");

const PREFIX_CHARS = 24_000; // as much as the server reads on a GPU; on a CPU it cuts more off
const SUFFIX_CHARS = 4_000;

class Completions {
  /**
   * @param {import("../server/server").Server} server @param {(measured: import("../status").Measured) => void} measured
   * @param {(line: string) => void} log
   */
  constructor(server, measured, log) {
    this._server = server;
    this._log = log;
    this._measured = measured;
    this._suggestions = new Suggestions();
  }

  /**
   * @param {vscode.TextDocument} document @param {vscode.Position} position
   * @param {vscode.InlineCompletionContext} context @param {vscode.CancellationToken} token
   */
  async provideInlineCompletionItems(document, position, context, token) {
    const settings = vscode.workspace.getConfiguration("vivace.completions", document);
    if (!settings.get("enabled") || !this._server.address || context.selectedCompletionInfo) return [];
    const place = around(document, position);
    const wanted = extent(place.before, place.after, settings.get("blocks", true));
    if (!wanted) return [];
    let text = this._suggestions.find(place.file, place.prefix, place.suffix);
    if (text === undefined) {
      const isAsked = context.triggerKind === vscode.InlineCompletionTriggerKind.Invoke;
      if (!isAsked && !(await rest(settings.get("delay", 80), token))) return [];
      text = await this._ask(place, wanted, token);
    }
    if (!text) return [];
    return [new vscode.InlineCompletionItem(text, new vscode.Range(position, position))];
  }

  /**
   * @param {Place} place @param {object} wanted @param {vscode.CancellationToken} token
   * @returns {Promise<string>}
   */
  async _ask(place, wanted, token) {
    const leaving = new AbortController();
    const cancelled = token.onCancellationRequested(() => leaving.abort());
    try {
      const body = { prompt: place.prefix, suffix: place.suffix, temperature: 0, ...wanted };
      const answer = await this._server.fetch("/v1/completions", { body, signal: leaving.signal });
      const completion = /** @type {any} */ (await answer.json());
      const text = tidied(completion.choices[0].text, place.after);
      this._suggestions.put({ ...place, text });
      this._measured({ tokens: completion.usage.completion_tokens, waterfall: completion.vivace?.waterfall });
      return text;
    } catch (error) {
      if (!leaving.signal.aborted) this._log(`No completion: ${error}`); // the server tells itself that it has gone
      return "";
    } finally {
      cancelled.dispose();
    }
  }
}

/**
 * @typedef {{ file: string, prefix: string, suffix: string, before: string, after: string }} Place
 * @param {vscode.TextDocument} document @param {vscode.Position} position @returns {Place}
 */
function around(document, position) {
  const text = document.getText();
  const at = document.offsetAt(position);
  const line = document.lineAt(position.line).text;
  return {
    file: document.uri.toString(),
    prefix: text.slice(Math.max(0, at - PREFIX_CHARS), at),
    suffix: text.slice(at, at + SUFFIX_CHARS),
    before: line.slice(0, position.character),
    after: line.slice(position.character),
  };
}

/** Wait; return false if the next key came first. @param {number} ms @param {vscode.CancellationToken} token */
function rest(ms, token) {
  return new Promise((resolve) => {
    if (token.isCancellationRequested) return resolve(false);
    const timer = setTimeout(() => resolve(!token.isCancellationRequested), ms);
    token.onCancellationRequested(() => {
      clearTimeout(timer);
      resolve(false);
    });
  });
}

module.exports = { Completions };
