// The connection to the face host: requests with their answers, events as they come, and connecting again when it is lost.
// Owns ids of requests and the waits between two attempts. Does not know what a request or an event means.

import { openTransport } from "./place.js";

const FIRST_WAIT_MS = 250;
const LONGEST_WAIT_MS = 5000;

/** An answer that says no, or a connection that was lost before there was one (`code` "gone"). */
export class Refused extends Error {
  constructor({ code, message, hint }) {
    super(message);
    this.code = code;
    this.hint = hint ?? "";
  }
}

const GONE = { code: "gone", message: "The connection to the server was lost.", hint: "It is tried again." };

export class Link {
  /** @type {ReturnType<typeof openTransport> | null} */
  #transport = null;
  #isOpen = false;
  #waiting = new Map(); // id of a request → {resolve, reject}
  #nextId = 1;
  #waitMs = FIRST_WAIT_MS;
  #timer = 0;

  /** @param {{connected: () => void, lost: (reason: string) => void, event: (message: object) => void}} handlers */
  constructor(handlers) {
    this.handlers = handlers;
  }

  open() {
    clearTimeout(this.#timer);
    if (this.#transport) return;
    this.#transport = openTransport({
      opened: () => {
        this.#isOpen = true;
        this.#waitMs = FIRST_WAIT_MS;
        this.handlers.connected();
      },
      received: (text) => this.#receive(JSON.parse(text)),
      closed: (reason) => this.#lose(reason),
    });
  }

  /** Send a request and return its answer. Throws `Refused`. */
  call(operation, args = {}) {
    const transport = this.#transport;
    if (!transport || !this.#isOpen) return Promise.reject(new Refused(GONE));
    const id = this.#nextId++;
    return new Promise((resolve, reject) => {
      this.#waiting.set(id, { resolve, reject });
      transport.send(JSON.stringify({ id, do: operation, ...args }));
    });
  }

  #receive(message) {
    if (!("id" in message)) return this.handlers.event(message);
    const waiting = this.#waiting.get(message.id);
    this.#waiting.delete(message.id);
    if (message.error) waiting?.reject(new Refused(message.error));
    else waiting?.resolve(message.ok);
  }

  #lose(reason) {
    this.#transport = null;
    this.#isOpen = false;
    const waiting = [...this.#waiting.values()];
    this.#waiting.clear();
    for (const { reject } of waiting) reject(new Refused(GONE));
    this.handlers.lost(reason);
    this.#timer = setTimeout(() => this.open(), this.#waitMs);
    this.#waitMs = Math.min(this.#waitMs * 2, LONGEST_WAIT_MS);
  }
}
