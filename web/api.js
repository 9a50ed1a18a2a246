// Talks to the server: one function for requests, one for asking again and again.
//
// Credentials stay in memory. They are gone after a reload, and no other page can read them.

let credentials = null;

// What the server answers instead of data. `code` is stable and has a translation; `message` is the
// server's own sentence. Status 0 means that the server does not answer.
export class ApiError extends Error {
  constructor(status, { code, message, ...more }) {
    super(message);
    Object.assign(this, { status, code, more });
  }
}

// Keeps a user's name and password for all later requests; null drops them.
export function signIn(user, password) {
  const bytes = new TextEncoder().encode(`${user}:${password}`);
  credentials = user === null ? null : `Basic ${btoa(String.fromCharCode(...bytes))}`;
}

// Requests a path below /api, and returns the body. A POST has a body.
export async function ask(path, { body, signal } = {}) {
  const headers = { "X-Inbloom": "1" };
  if (credentials) headers.Authorization = credentials;
  if (body) headers["Content-Type"] = "application/json";
  const request = {
    headers,
    signal,
    method: body ? "POST" : "GET",
    body: body && JSON.stringify(body),
    credentials: "omit",
  };
  let response;
  try {
    response = await fetch(`api/${path}`, request);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, { code: "offline", message: error.message });
  }
  const answer = await response.json().catch((error) => {
    if (error.name === "AbortError") throw error;
    return null;
  });
  if (response.ok && answer !== null) return answer;
  throw new ApiError(
    response.status,
    answer?.error ?? { code: "unreadable", message: response.statusText },
  );
}

// A path with parameters; those that are empty are left out.
export function withParameters(path, parameters) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    if (value !== null && value !== undefined && value !== "" && value !== false)
      query.set(name, value);
  }
  const text = query.toString();
  return text === "" ? path : `${path}?${text}`;
}

// Calls `action(signal)` now and `pause` milliseconds after each end, but not while the page is
// hidden. Returns a function that stops it, and one that calls it at once.
export function poll(action, pause) {
  let timer = null;
  let controller = null;
  let isStopped = false;
  const run = async () => {
    clearTimeout(timer);
    controller?.abort();
    const own = new AbortController();
    controller = own;
    try {
      if (!document.hidden) await action(own.signal);
    } catch (error) {
      if (error.name !== "AbortError") throw error;
    } finally {
      if (!isStopped && own === controller) timer = setTimeout(run, pause);
    }
  };
  const wake = () => {
    if (!document.hidden) run();
  };
  document.addEventListener("visibilitychange", wake);
  run();
  return {
    now: run,
    stop: () => {
      isStopped = true;
      clearTimeout(timer);
      controller?.abort();
      document.removeEventListener("visibilitychange", wake);
    },
  };
}
