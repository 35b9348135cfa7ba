// An edit as the host has it: its name there, what it is told, and what it tells.
//
// Owns that the host may be gone at any time. Does not know what becomes of the document (`editing`).
"use strict";

const { FaceError } = require("../server/face");

class Hosted {
  /** @param {import("../server/face").Face} face @param {(event: any) => void} heard */
  constructor(face, heard) {
    this._face = face;
    this._heard = heard;
    this._edit = "";
  }

  /** Begin, in a folder. @param {string} folder @param {object} request */
  async start(folder, request) {
    const { edit } = await this._face.requestIn(folder, "edit.start", request);
    this._edit = edit;
    this._face.listen(edit, this._heard);
  }

  /** Turn the edit around. Return false if it is over. @param {string} text */
  async steer(text) {
    try {
      await this._face.request("edit.steer", { edit: this._edit, text });
      return true;
    } catch (error) {
      if (!(error instanceof FaceError) || error.code !== "gone") throw error;
      return false;
    }
  }

  /** Tell the host; it may be gone, which changes nothing here. @param {string} operation @param {object} [request] */
  async tell(operation, request = {}) {
    if (!this._edit) return;
    await this._face.request(operation, { edit: this._edit, ...request }).catch(() => {});
  }

  /** Hear no more of it. */
  leave() {
    this._face.leave(this._edit);
  }
}

module.exports = { Hosted };
