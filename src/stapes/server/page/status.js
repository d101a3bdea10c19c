// What the server is doing: models, requests that run and wait.

import { byId, make } from "./dom.js";

const CALM_MS = 5000;
const BUSY_MS = 1500;

export class ServerStatus {
  /** Requests of others and ours: {running, waiting}. */
  load = { running: 0, waiting: 0 };
  #server;
  #isBusy = () => false;
  #timer = null;
  #onChange;

  /** isBusy(): whether somebody watches closely; onChange(load) after each look. */
  constructor(server, isBusy, onChange) {
    this.#server = server;
    this.#isBusy = isBusy;
    this.#onChange = onChange;
    document.addEventListener("visibilitychange", () => this.look());
    byId("server").addEventListener("toggle", () => this.look());
    addEventListener("click", (event) => {
      if (!byId("server").contains(event.target)) byId("server").open = false;
    });
    byId("server").addEventListener("keydown", (event) => {
      if (event.key !== "Escape") return;
      byId("server").open = false;
      byId("server").querySelector("summary").focus();
    });
  }

  /** Ask now, and again after a while, as long as somebody sees the page. */
  async look() {
    clearTimeout(this.#timer);
    if (document.hidden) return;
    const timer = (this.#timer = setTimeout(() => {}, 0)); // a later look makes this one void
    let health = null;
    try {
      health = await this.#server.health();
    } catch {
      // Shown as gone.
    }
    if (timer !== this.#timer) return;
    this.#show(health);
    const isWatched = this.#isBusy() || byId("server").open;
    this.#timer = setTimeout(() => this.look(), isWatched ? BUSY_MS : CALM_MS);
  }

  #show(health) {
    const lanes = Object.entries(health?.models ?? {});
    const sum = (name) => lanes.reduce((total, [, lane]) => total + lane[name], 0);
    this.load = { running: sum("running"), waiting: sum("waiting") };
    const [state, text] = stateOf(health, this.load);
    byId("server").dataset.health = state;
    if (byId("server-state").textContent !== text) byId("server-state").textContent = text;
    byId("server-models").replaceChildren(
      ...lanes.map(([name, { running, waiting, slots }]) =>
        make(
          "tr",
          {},
          make("th", { scope: "row" }, name),
          make("td", {}, `${running} of ${slots}`),
          make("td", {}, String(waiting)),
        ),
      ),
    );
    this.#onChange(this.load);
  }
}

function stateOf(health, { running, waiting }) {
  if (!health) return ["gone", "Not reachable"];
  if (health.status === "stopping") return ["gone", "Stopping"];
  if (health.status !== "ok") return ["gone", "Not answering"];
  if (waiting) return ["busy", `${running} running, ${waiting} waiting`];
  return running ? ["busy", `${running} running`] : ["ok", "Ready"];
}
