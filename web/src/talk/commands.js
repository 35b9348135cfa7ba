// Commands that begin with a slash, as in the terminal. Owns their names; what they do is asked of the host.

import { ask, change, forkTalk, notify, openTalk, state } from "../app.js";
import { copyAndSay } from "../shell/copy.js";

const COMMANDS = {
  btw: { help: "ask beside the conversation", run: (question) => ask("conversation.btw", { question }), needsText: true },
  note: { help: "tell the model this in front of the next message", run: (text) => ask("conversation.note", { text }), needsText: true },
  undo: { help: "take back the newest edit", run: () => ask("conversation.undo") },
  redo: { help: "bring back the edit that was undone last", run: () => ask("conversation.redo") },
  compact: { help: "let the model read a summary of what was said", run: () => ask("conversation.compact") },
  context: { help: "what the model reads", run: () => change({ dialog: "context" }) },
  export: { help: "copy the conversation as Markdown", run: exportTalk },
  fork: { help: "go on in a copy of the conversation", run: () => forkTalk(state.talk.id) },
  new: { help: "begin a new conversation", run: () => openTalk("") },
  folder: { help: "work in another folder", run: () => change({ dialog: "folder" }) },
  keys: { help: "all keys", run: () => change({ dialog: "keys" }) },
};

/** Return [name, help] of the commands that begin like this. */
export function commandsLike(text) {
  const typed = /^\/([a-z]*)$/.exec(text);
  return typed ? Object.entries(COMMANDS).filter(([name]) => name.startsWith(typed[1])).map(([name, { help }]) => [`/${name}`, help]) : [];
}

/** Run a command. Return whether the text is one; a path that begins with a slash is none. */
export async function runCommand(text) {
  const [, name, rest] = /^\/([a-z]+)(?:\s+([\s\S]*))?$/.exec(text.trim()) ?? [];
  if (!name || !Object.hasOwn(COMMANDS, name)) return false;
  const { run, needsText, help } = COMMANDS[name];
  if (needsText && !rest) notify(`/${name} needs a text: ${help}.`);
  else await run(rest ?? "");
  return true;
}

async function exportTalk() {
  const exported = await ask("conversation.export");
  if (exported) await copyAndSay(exported.text, "The conversation");
}
