// Text, numbers and times as a person reads them.

// Characters that turn the direction of what follows, or cannot be seen: text that looks like other text.
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff]/g;

/** Return the text with hidden and direction-changing characters made visible. */
export function shown(text) {
  const written = String(text ?? "");
  return written.replace(HIDDEN, (char) => `⟨U+${char.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`);
}

// All that `vivace.agent.permissions.shown` hides, but for tabs and line breaks: for text that somebody keeps, writes or runs.
const UNSEEN = /(?![\t\n ])[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Cn}\p{Zs}\p{Zl}\p{Zp}\p{Me}\u034f\u0334-\u0338\u115f\u1160\u17b4\u17b5\u180b-\u180f\u20d2-\u20eb\u2800\u3164\ufe00-\ufe0f\uffa0\ufffc\u{16fe4}\u{1d159}\u{13441}\u{13442}\u{e0000}-\u{e0fff}]/gu;

/** Return text that is decided about, with everything in it that cannot be seen written out. */
export function reviewed(text) {
  return String(text ?? "").replace(UNSEEN, (char) => `⟨U+${(char.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0")}⟩`);
}

export function duration(ms) {
  if (ms < 1) return `${ms.toFixed(2)} ms`;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(1)} s`;
  return `${Math.floor(ms / 60_000)} min ${Math.round((ms % 60_000) / 1000)} s`;
}

export function count(number) {
  return Number(number ?? 0).toLocaleString("en-US");
}

/** Return a number of tokens in few characters: 812, 4.1k, 128k. */
export function short(tokens) {
  if (tokens < 1000) return String(tokens);
  return tokens < 100_000 ? `${(tokens / 1000).toFixed(1)}k` : `${Math.round(tokens / 1000)}k`;
}

export function ago(seconds) {
  const passed = Date.now() / 1000 - seconds;
  if (passed < 60) return "now";
  if (passed < 3600) return `${Math.floor(passed / 60)} min`;
  if (passed < 86_400) return `${Math.floor(passed / 3600)} h`;
  if (passed < 7 * 86_400) return `${Math.floor(passed / 86_400)} d`;
  return new Date(seconds * 1000).toLocaleDateString();
}

export function plural(number, word) {
  return `${count(number)} ${word}${number === 1 ? "" : "s"}`;
}

/** Return the path below the folder, or the path itself. */
export function relative(path, folder) {
  return folder && path.startsWith(`${folder}/`) ? path.slice(folder.length + 1) : path;
}

export function fileName(path) {
  return path.slice(path.lastIndexOf("/") + 1);
}
