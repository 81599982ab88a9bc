/** Asks the aggregated API, through the program that has served this page. */

const BASE = "/apis/visibility.pumice.dev/v1alpha1";
const RETRY_MS = 5000;

/** An answer that says no. */
class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }

  /** Return whether the same question may be answered later. */
  get passes() {
    return this.status === 0 || this.status === 429 || this.status >= 500;
  }
}

const WORDS = new Map([
  [0, "No answer: does `pumice web` still run?"],
  [401, "This page's key is not valid any more: open the address that `pumice web` prints."],
  [404, "Not found. If nothing at all is found, the visibility service may not be installed."],
]);

/** Return the path of a resource. */
export function path(resource, namespace = "", name = "") {
  const words = namespace ? ["namespaces", namespace, resource] : [resource];
  return [BASE, ...(name ? [...words, name] : words).map(encodeURIComponent)].join("/");
}

async function answer(url, options) {
  let response;
  try {
    response = await fetch(url, { credentials: "same-origin", ...options });
  } catch {
    throw new Refused(0, WORDS.get(0));
  }
  const text = await response.text();
  if (response.ok) return JSON.parse(text);
  throw new Refused(response.status, reason(response.status, text));
}

function reason(status, text) {
  try {
    const { message } = JSON.parse(text);
    if (message) return message;
  } catch {
    // No Status of Kubernetes: our own words for the code must do.
  }
  return WORDS.get(status) ?? `The API server answered ${status}.`;
}

/** Return the answer to a GET. Raises Refused. */
export const get = (url) => answer(url, {});

/** Return the answer to a POST of JSON, or of text that is sent as it is. Raises Refused. */
export function post(url, body, type = "application/json") {
  const text = typeof body === "string" ? body : JSON.stringify(body);
  return answer(url, { method: "POST", body: text, headers: { "Content-Type": type } });
}

/** Follows what changes, and says whether it does; a stream that ended is opened again. */
export class Changes {
  #source = null;
  #timer = 0;

  constructor({ changed, happened, live }) {
    this.changed = changed;
    this.happened = happened;
    this.live = live;
  }

  /** Follow one namespace, or all of them; what was followed before is left. */
  follow(namespace) {
    this.stop();
    const source = new EventSource(`${path("changes", namespace)}?watch=1`);
    this.#source = source;
    source.addEventListener("open", () => this.live(true));
    source.addEventListener("changed", (event) => this.changed(JSON.parse(event.data).resources ?? []));
    source.addEventListener("happened", (event) => this.happened(JSON.parse(event.data).entry));
    source.addEventListener("error", () => {
      this.live(false);
      // A stream that breaks is opened again by the browser, one that was refused is not.
      if (source.readyState === EventSource.CLOSED) this.#again(namespace);
    });
  }

  #again(namespace) {
    this.#timer = setTimeout(() => this.follow(namespace), RETRY_MS);
  }

  /** Follow nothing. */
  stop() {
    clearTimeout(this.#timer);
    this.#source?.close();
    this.#source = null;
  }
}
