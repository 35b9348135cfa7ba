// The status bar: which model, how fast its last turn was, and whether it is warm.
//
// Owns the words. Asks the server every second while it is cold, and every 30 seconds while the window is used.
"use strict";

const vscode = require("vscode");

const REFRESH_MS = 30_000;
const COLD_MS = 1000;

/** @typedef {{ tokens: number, waterfall?: { decode_ms?: number } }} Measured */

class Status {
  /** @param {import("./server/server").Server} server */
  constructor(server) {
    this._server = server;
    this._speed = "";
    this._isReady = false;
    this._doing = "";
    this._item = vscode.window.createStatusBarItem("vivace.status", vscode.StatusBarAlignment.Right, 90);
    this._item.name = "Vivace";
    this._item.command = "vivace.menu";
    this._item.show();
    this._timer = setInterval(() => vscode.window.state.focused && this.refresh(), REFRESH_MS);
    /** @type {NodeJS.Timeout | undefined} */
    this._cold = undefined;
    this.show();
  }

  /** Take the figures of a turn that has ended. @param {Measured} measured */
  measured({ tokens, waterfall }) {
    const ms = waterfall?.decode_ms ?? 0;
    if (tokens > 1 && ms > 0) this._speed = `${Math.round((1000 * tokens) / ms)} tok/s`;
    this._isReady = true;
    this.show();
  }

  /** Say what is being done, such as "writing"; "" when it is over. @param {string} what */
  doing(what) {
    this._doing = what;
    this.show();
  }

  /** Ask the server whether its engine is ready. */
  async refresh() {
    await this._server.check();
    try {
      const status = /** @type {any} */ (await (await this._server.fetch("/v1/vivace/status")).json());
      this._isReady = status.engine.is_ready;
    } catch {
      this._isReady = false;
    }
    this.show();
    clearTimeout(this._cold);
    if (this._server.address && !this._isReady) this._cold = setTimeout(() => this.refresh(), COLD_MS);
  }

  show() {
    const { address, isStarting } = this._server;
    const enabled = vscode.workspace.getConfiguration("vivace.completions").get("enabled");
    const state = isStarting ? "starting" : !address ? "off" : this._isReady ? "warm" : "cold";
    const icon = isStarting || this._doing ? "$(loading~spin)" : address ? "$(zap)" : "$(circle-slash)";
    const model = address ? short(address.model) : "Vivace";
    const parts = [model, address && this._speed, this._doing || state, !enabled && "completions off"];
    this._item.text = `${icon} ${parts.filter(Boolean).join(" · ")}`;
    this._item.accessibilityInformation = { label: `Vivace: ${parts.filter(Boolean).join(", ")}` };
    this._item.tooltip = address
      ? `Vivace: ${address.model} at ${address.url}. Click for the menu.`
      : "Vivace: the server does not run. It starts with the next command. Click for the menu.";
  }

  dispose() {
    clearInterval(this._timer);
    clearTimeout(this._cold);
    this._item.dispose();
  }
}

/** Return a model's name without its folder. @param {string} model */
function short(model) {
  return model.split(/[\\/]/).pop() ?? model;
}

module.exports = { Status };
