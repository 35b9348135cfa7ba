// The connection to the face host: one WebSocket through the server, requests with answers, and events of edits.
//
// Owns ids, the ticket, and that everything that waits is told when the connection breaks. Reconnects at the next
// request. Does not know what an edit is.
"use strict";

const OPEN_MS = 60_000; // the host is a process that starts at the first need

/** @typedef {{ id?: number, ok?: any, error?: { code: string, message: string, hint?: string }, edit?: string, event?: any }} Frame */

class FaceError extends Error {
  /** @param {{ code: string, message: string, hint?: string }} problem */
  constructor({ code, message, hint }) {
    super(hint ? `${message} ${hint}` : message);
    this.code = code;
  }
}

class Face {
  /** @param {import("./server").Server} server */
  constructor(server) {
    this._server = server;
    this._folder = ""; // that files must be in
    /** @type {Promise<WebSocket> | null} */
    this._socket = null;
    this._id = 0;
    /** @type {Map<number, { resolve: (ok: any) => void, reject: (error: Error) => void }>} */
    this._waiting = new Map();
    /** @type {Map<string, (event: any) => void>} by the edit's id */
    this._edits = new Map();
    /** @type {Map<string, any[]>} events of edits that nobody listens to yet */
    this._early = new Map();
  }

  /** Ask the host about a file in a folder. @param {string} folder @param {string} operation @param {object} request @returns {Promise<any>} */
  async requestIn(folder, operation, request) {
    if (folder !== this._folder) {
      this._folder = folder;
      if (this._socket) await this.request("folder.open", { path: folder });
    }
    return this.request(operation, request);
  }

  /** Ask the host; connect first if need be. @param {string} operation @param {object} [request] @returns {Promise<any>} */
  async request(operation, request = {}) {
    this._socket ??= this._connect();
    let socket;
    try {
      socket = await this._socket;
    } catch (error) {
      this._socket = null;
      throw error;
    }
    return this._ask(socket, operation, request);
  }

  /** Hear the events of an edit, those that came already included. @param {string} edit @param {(event: any) => void} listener */
  listen(edit, listener) {
    this._edits.set(edit, listener);
    for (const event of this._early.get(edit) ?? []) listener(event);
    this._early.delete(edit);
  }

  /** @param {string} edit */
  leave(edit) {
    this._edits.delete(edit);
  }

  async dispose() {
    (await this._socket?.catch(() => null))?.close();
  }

  /** @param {WebSocket} socket @param {string} operation @param {object} request @returns {Promise<any>} */
  _ask(socket, operation, request) {
    const id = ++this._id;
    return new Promise((resolve, reject) => {
      this._waiting.set(id, { resolve, reject });
      socket.send(JSON.stringify({ id, do: operation, ...request }));
    });
  }

  /** @returns {Promise<WebSocket>} */
  async _connect() {
    await this._server.ensure();
    const socket = await openSocket(this._server);
    socket.addEventListener("message", ({ data }) => this._received(JSON.parse(String(data))));
    socket.addEventListener("close", () => this._closed());
    await this._ask(socket, "hello", { version: 1, face: "VS Code", folder: this._folder });
    return socket;
  }

  /** @param {Frame} frame */
  _received(frame) {
    if (frame.edit) {
      const listener = this._edits.get(frame.edit);
      if (listener) return listener(frame.event);
      this._early.set(frame.edit, [...(this._early.get(frame.edit) ?? []), frame.event]);
      return;
    }
    const waiting = this._waiting.get(frame.id ?? -1);
    if (!waiting) return;
    this._waiting.delete(frame.id ?? -1);
    if (frame.error) waiting.reject(new FaceError(frame.error));
    else waiting.resolve(frame.ok);
  }

  _closed() {
    this._socket = null;
    const problem = { code: "server_gone", message: "The connection to Vivace broke off." };
    for (const { reject } of this._waiting.values()) reject(new FaceError(problem));
    this._waiting.clear();
    for (const listener of [...this._edits.values()]) listener({ type: "edit.lost", message: problem.message });
    this._edits.clear();
    this._early.clear();
    this._server.check();
  }
}

/** Open a socket to the face host of a server that runs. @param {import("./server").Server} server @returns {Promise<WebSocket>} */
async function openSocket(server) {
  const { ticket } = /** @type {any} */ (await (await server.fetch("/v1/vivace/tickets", { body: {} })).json());
  const address = /** @type {import("./server").Address} */ (server.address);
  const url = `${address.url.replace(/^http/, "ws")}/vivace/faces`;
  return new Promise((resolve, reject) => {
    const socket = new WebSocket(url, ["vivace", `bearer.${ticket}`]);
    const timer = setTimeout(() => socket.close(), OPEN_MS);
    const failed = () => {
      clearTimeout(timer);
      reject(new FaceError({ code: "server_gone", message: "Vivace could not be reached." }));
    };
    socket.addEventListener("close", failed);
    socket.addEventListener("error", failed);
    socket.addEventListener("open", () => {
      clearTimeout(timer);
      socket.removeEventListener("close", failed);
      resolve(socket);
    });
  });
}

module.exports = { Face, FaceError, openSocket };
