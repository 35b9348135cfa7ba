// A notification as long as an edit waits for its model: what it waits for, how far that is, and a button that stops it.
//
// Owns when it is there. Does not know what is waited for: the words are the host's.
"use strict";

const vscode = require("vscode");

class Waiting {
  /** @param {() => void} stop */
  constructor(stop) {
    this._stop = stop;
    this._words = "";
    /** @type {vscode.Progress<{ message: string }> | null} */
    this._progress = null;
    this._close = () => {};
  }

  /** Say what is waited for; "" takes the notification away. @param {string} words */
  show(words) {
    if (words === this._words) return;
    if (words && !this._words) this._open();
    this._words = words;
    if (words) this._progress?.report({ message: words });
    else this._close();
  }

  _open() {
    this._progress = null; // of the one before
    const over = /** @type {Promise<void>} */ (new Promise((resolve) => (this._close = resolve)));
    const options = { location: vscode.ProgressLocation.Notification, title: "Vivace", cancellable: true };
    void vscode.window.withProgress(options, (progress, token) => {
      this._progress = progress;
      token.onCancellationRequested(this._stop);
      progress.report({ message: this._words }); // it is opened some time after it was asked for
      return over;
    });
  }
}

module.exports = { Waiting };
