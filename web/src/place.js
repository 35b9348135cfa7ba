// Where the app runs: in a browser, or in a webview of VS Code. Owns the way to the face host, what is kept between two
// visits, and how a link is opened. Nothing else in the app knows a URL, a ticket, `localStorage` or `acquireVsCodeApi`.

const webview = typeof globalThis.acquireVsCodeApi === "function" ? globalThis.acquireVsCodeApi() : null;

export const isWebview = webview !== null;

/**
 * Open a connection. Return `{send(text), close()}`. The handlers are called later, never from inside of this call.
 * @param {{opened: () => void, received: (text: string) => void, closed: (reason: string) => void}} handlers
 */
export function openTransport(handlers) {
  return webview ? openThroughEditor(handlers) : openSocket(handlers);
}

// A webview may not reach a socket itself: the extension has the connection, and frames pass as messages.
function openThroughEditor(handlers) {
  const listen = ({ data }) => {
    if (data?.vivace === "opened") handlers.opened();
    else if (data?.vivace === "frame") handlers.received(data.text);
    else if (data?.vivace === "closed") end(data.reason || "");
  };
  const end = (reason) => {
    removeEventListener("message", listen);
    handlers.closed(reason);
  };
  addEventListener("message", listen);
  webview.postMessage({ vivace: "open" });
  return {
    send: (text) => webview.postMessage({ vivace: "frame", text }),
    close: () => webview.postMessage({ vivace: "close" }),
  };
}

function openSocket(handlers) {
  const url = new URL(setting("vivace-socket") || "v1/vivace/faces", document.baseURI);
  url.protocol = url.protocol.replace("http", "ws");
  const ticket = setting("vivace-ticket");
  const socket = new WebSocket(url, ticket ? [`bearer.${ticket}`] : []);
  socket.onopen = () => handlers.opened();
  socket.onmessage = ({ data }) => handlers.received(data);
  socket.onclose = ({ code, reason }) => handlers.closed(reason || (code === 1006 ? "" : String(code)));
  const send = (text) => socket.readyState === WebSocket.OPEN && socket.send(text); // while it closes, `closed` follows
  return { send, close: () => socket.close() };
}

function setting(name) {
  return document.querySelector(`meta[name="${name}"]`)?.getAttribute("content") ?? "";
}

/** Return what was kept under this name, or the default. A browser may refuse to keep anything. */
export function kept(name, otherwise) {
  try {
    const text = webview ? webview.getState()?.[name] : localStorage.getItem(`vivace.${name}`);
    return text === null || text === undefined ? otherwise : JSON.parse(text);
  } catch {
    return otherwise;
  }
}

export function keep(name, value) {
  try {
    const text = JSON.stringify(value);
    if (webview) webview.setState({ ...webview.getState(), [name]: text });
    else localStorage.setItem(`vivace.${name}`, text);
  } catch {
    // Nothing is kept then: the app works without.
  }
}

/** The conversation that this tab shows, so that a reload shows it again. */
export function rememberTalk(id) {
  if (webview) keep("talk", id);
  else history.replaceState(null, "", id ? `#${id}` : location.pathname);
}

export function rememberedTalk() {
  return webview ? kept("talk", "") : location.hash.slice(1);
}
