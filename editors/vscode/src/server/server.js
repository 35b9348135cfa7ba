// The warm server: find it or start it through the `vivace` command, and ask it things over HTTP.
//
// Owns the address and the token, and knows when the server has gone. Does not show anything: `onChange` tells
// the status bar, `onGone` tells the user once.
"use strict";

const { spawn } = require("node:child_process");
const fs = require("node:fs/promises");
const path = require("node:path");

const START_MS = 600_000; // the first start may download the model

/**
 * @typedef {{ url: string, token_file: string, pid: number, model: string }} Printed what `vivace serve --ensure` prints
 * @typedef {{ url: string, token: string, pid: number, model: string }} Address
 */

class ServerError extends Error {
  /** @param {string} message @param {string} [hint] */
  constructor(message, hint = "") {
    super(hint ? `${message} ${hint}` : message);
  }
}

class Server {
  /** @param {() => string[]} command @param {(line: string) => void} log */
  constructor(command, log) {
    this._command = command;
    this._log = log;
    /** @type {Address | null} */
    this.address = null;
    /** @type {Promise<Address> | null} */
    this._starting = null;
    this.onChange = () => {};
    this.onGone = () => {};
  }

  /** Whether a start is under way. */
  get isStarting() {
    return this._starting !== null;
  }

  /** Return the address of a server that runs; start one if there is none. @returns {Promise<Address>} */
  async ensure() {
    if (this.address && (await this._isAlive(this.address))) return this.address;
    this._starting ??= this._start().finally(() => {
      this._starting = null;
      this.onChange();
    });
    this.onChange();
    return this._starting;
  }

  /**
   * Ask the running server. Throws if there is none: only `ensure` starts one.
   * @param {string} route @param {{ body?: unknown, signal?: AbortSignal }} [options] @returns {Promise<Response>}
   */
  async fetch(route, { body, signal } = {}) {
    const address = this.address;
    if (!address) throw new ServerError("The Vivace server does not run.");
    const headers = { authorization: `Bearer ${address.token}`, "content-type": "application/json" };
    const method = body === undefined ? "GET" : "POST";
    let answer;
    try {
      const text = body === undefined ? undefined : JSON.stringify(body);
      answer = await fetch(new URL(route, address.url), { method, headers, body: text, signal });
    } catch (error) {
      if (!signal?.aborted) await this.check();
      throw error;
    }
    if (!answer.ok) throw new ServerError(await refusal(answer));
    return answer;
  }

  /** Look whether the server still runs, and say so if it does not. */
  async check() {
    const address = this.address;
    if (!address || (await this._isAlive(address)) || this.address !== address) return;
    this.address = null;
    this._log(`The server (pid ${address.pid}) is gone.`);
    this.onChange();
    this.onGone();
  }

  /** @param {Address} address */
  async _isAlive(address) {
    try {
      const answer = await fetch(new URL("/healthz", address.url), { signal: AbortSignal.timeout(5000) });
      return (await answer.json()).pid === address.pid;
    } catch {
      return false;
    }
  }

  /** @returns {Promise<Address>} */
  async _start() {
    const [program, ...words] = this._command();
    const output = await run(program, [...words, "serve", "--ensure"], this._log);
    /** @type {Printed} */
    const printed = JSON.parse(output);
    const token = (await fs.readFile(printed.token_file, "ascii")).trim();
    this.address = { url: printed.url, token, pid: printed.pid, model: printed.model };
    this._log(`The server runs at ${printed.url} (pid ${printed.pid}) with ${printed.model}.`);
    return this.address;
  }
}

/**
 * Run a command and return what it prints. Its errors are passed on line by line while it runs.
 * @param {string} program @param {string[]} words @param {(line: string) => void} log @returns {Promise<string>}
 */
function run(program, words, log) {
  return new Promise((resolve, reject) => {
    const child = spawn(program, words, { stdio: ["ignore", "pipe", "pipe"], timeout: START_MS });
    let printed = "";
    let complaint = "";
    child.stdout.on("data", (data) => (printed += data));
    child.stderr.on("data", (data) => {
      complaint = (complaint + data).slice(-2000);
      log(String(data).trimEnd());
    });
    child.on("error", (error) => {
      const hint = "Install Vivace, or name its command in the setting vivace.command.";
      reject(new ServerError(`\`${program}\` cannot be run: ${error.message}.`, hint));
    });
    child.on("close", (code) => {
      if (code === 0) resolve(printed);
      else reject(new ServerError(complaint.trim() || `\`${program}\` ended with exit code ${code}.`));
    });
  });
}

/** Return why the server refused, in its words. @param {Response} answer */
async function refusal(answer) {
  const text = await answer.text();
  try {
    return JSON.parse(text).error.message;
  } catch {
    return `The server answered with status ${answer.status}.`;
  }
}

/** Return the command that the extension was installed with. @param {string} folder @returns {string[]} */
function installedCommand(folder) {
  try {
    return require(path.join(folder, "command.json"));
  } catch {
    return ["vivace"];
  }
}

module.exports = { Server, ServerError, installedCommand };
