// The app's own dark and light colours, chosen by VS Code's theme instead of the system's.
//
// Owns the translation of the style sheet. Pure: knows nothing of VS Code.
"use strict";

// What a webview knows of VS Code's colours. The rest stays the app's own.
const GROUND = "--ground: var(--vscode-sideBar-background); --text: var(--vscode-foreground);";

/** Return rules that go behind the app's style sheet. @param {string} css the app's style sheet */
function themed(css) {
  const block = (/** @type {string} */ scheme) => css.match(new RegExp(`\\{([^{}]*color-scheme:\\s*${scheme}[^{}]*)\\}`))?.[1] ?? "";
  const rule = (/** @type {string} */ kind, /** @type {string} */ scheme) =>
    `:root[data-theme="auto"]:has(body.${kind}) { ${block(scheme)}; ${GROUND} }`;
  return [rule("vscode-light", "light"), rule("vscode-dark", "dark"), rule("vscode-high-contrast", "dark")].join("\n");
}

module.exports = { themed };
