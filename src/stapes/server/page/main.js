// Puts the page together: what the user chooses, one job at a time, and what goes wrong.

import { byId, make, show } from "./dom.js";
import { FileJob } from "./file-job.js";
import { LiveJob } from "./live-job.js";
import { Problem, Server } from "./server.js";
import { ServerStatus } from "./status.js";
import { Work } from "./work.js";

const MEGABYTE = 2 ** 20;

const server = new Server();
const work = new Work(server);
let settings = { max_upload_bytes: Infinity, languages: [], live: false };
let hasWords = false;
let job = null;
let again = null; // what "Try again" does

const status = new ServerStatus(
  server,
  () => job !== null,
  (load) => job?.tellLoad(load),
);

// -- what goes wrong ------------------------------------------------------------------------------

function showProblem(error, retry) {
  if (!(error instanceof Problem)) console.error(error);
  if (error.status === 401) askForKey(error.message);
  byId("problem-text").textContent = error.message || String(error);
  again = retry;
  show(true, byId("problem"));
  show(Boolean(retry), byId("retry"));
  byId("problem").scrollIntoView({ block: "nearest" });
  status.look();
}

function hideProblem() {
  show(false, byId("problem"));
  again = null;
}

// -- jobs -----------------------------------------------------------------------------------------

const choices = () => ({
  model: byId("model").value,
  language: byId("language").value,
  context: byId("context").value.trim(),
  hasWords,
});

async function run(made, retry) {
  if (job) return;
  hideProblem();
  job = made;
  status.look();
  let problem = null;
  try {
    await job.run();
  } catch (error) {
    problem = error;
  }
  job = null;
  status.look();
  if (problem) showProblem(problem, retry);
  save(Boolean(problem));
}

/** Subtitles, without the recording; where something else went wrong, that is what is told. */
async function save(isQuiet) {
  if (!isQuiet) hideProblem();
  try {
    await work.save();
  } catch (error) {
    if (!isQuiet) showProblem(error, () => save(false));
  }
}

function takeFiles(files) {
  const [file, ...others] = files;
  if (!file) return;
  if (job) {
    showProblem(new Problem("One recording at a time: cancel this one first."), null);
    return;
  }
  if (others.length) {
    showProblem(new Problem("One recording at a time: choose a single file."), null);
    return;
  }
  if (!file.size) {
    showProblem(new Problem(`${file.name} is empty.`), null);
    return;
  }
  if (file.size > settings.max_upload_bytes) {
    const size = (file.size / MEGABYTE).toFixed(1);
    const most = settings.max_upload_bytes / MEGABYTE;
    showProblem(
      new Problem(`${file.name} has ${size} MB; this server takes up to ${+most.toFixed(1)} MB.`),
      null,
    );
    return;
  }
  if (!byId("model").value) {
    showProblem(new Problem("This server has no model that transcribes speech."), load);
    return;
  }
  transcribe(file);
}

function transcribe(file) {
  run(new FileJob(work, server, file, choices()), () => transcribe(file));
}

function speak() {
  const live = new LiveJob(work, server.key, choices());
  // What was said is not lost with the connection: it can be sent as a file.
  run(live, () => (live.file ? transcribe(live.file) : speak()));
}

// -- the server's models, limits and key ----------------------------------------------------------

function askForKey(hint) {
  show(true, byId("key-form"));
  if (hint && server.key) byId("key-hint").textContent = hint;
  byId("key").focus();
}

async function load() {
  hideProblem();
  status.look();
  try {
    settings = await server.settings();
    fillSettings();
    if (settings.key_needed && !server.key) {
      show(false, byId("source")); // nothing there works without it
      askForKey("");
      return;
    }
    fillModels(await server.models());
    show(false, byId("key-form"));
    show(document.body.dataset.state === "idle", byId("source"));
  } catch (error) {
    showProblem(error, load);
    if (error.status === 401) show(false, byId("problem")); // the form says it
  }
}

function fillSettings() {
  const chosen = byId("language").value;
  byId("language").replaceChildren(
    make("option", { value: "" }, "Detect"),
    ...settings.languages.map(({ code, name }) => make("option", { value: code }, name)),
  );
  byId("language").value = chosen;
  const most = settings.max_upload_bytes / MEGABYTE;
  byId("limit").textContent = `Sound or video of any common kind, up to ${+most.toFixed(1)}\u00a0MB`;
  byId("server-version").textContent = `stapes ${settings.version}`;
  show(settings.live, byId("microphone"));
  show(settings.key_needed, byId("change-key"));
}

function fillModels(models) {
  const speech = models.filter(({ kind }) => kind === "speech");
  hasWords = models.some(({ kind }) => kind === "aligner");
  const chosen = byId("model").value;
  byId("model").replaceChildren(...speech.map(({ id }) => make("option", { value: id }, id)));
  if (speech.some(({ id }) => id === chosen)) byId("model").value = chosen;
}

// -- what the user does ---------------------------------------------------------------------------

byId("choose").addEventListener("click", () => byId("file").click());
byId("file").addEventListener("change", () => {
  const files = [...byId("file").files];
  byId("file").value = ""; // so that the same file can be chosen again
  takeFiles(files);
});
byId("microphone").addEventListener("click", speak);
byId("stop").addEventListener("click", () => {
  byId("stop").disabled = true;
  show(true, byId("cancel")); // should the rest take long
  byId("cancel").focus();
  job?.stop();
});
byId("cancel").addEventListener("click", () => job?.cancel());
byId("again").addEventListener("click", () => {
  hideProblem();
  work.leave();
  byId("choose").focus();
});
byId("retry").addEventListener("click", () => again?.());
byId("dismiss").addEventListener("click", () => {
  hideProblem();
  (byId("work").hidden ? byId("choose") : byId("title")).focus();
});
byId("change-key").addEventListener("click", () => askForKey(""));
byId("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  server.key = byId("key").value.trim();
  byId("key").value = "";
  load();
});

const hasFiles = (event) => [...(event.dataTransfer?.types ?? [])].includes("Files");
addEventListener("dragover", (event) => {
  if (!hasFiles(event)) return;
  event.preventDefault();
  document.body.classList.add("dragging");
});
addEventListener("dragleave", (event) => {
  if (!event.relatedTarget) document.body.classList.remove("dragging");
});
addEventListener("drop", (event) => {
  document.body.classList.remove("dragging");
  if (!hasFiles(event)) return;
  event.preventDefault();
  takeFiles([...event.dataTransfer.files]);
});
addEventListener("keydown", (event) => {
  // The space bar plays, unless something that has the focus uses it.
  if (event.key !== " " || document.body.dataset.state !== "done") return;
  if (event.target !== document.body && event.target !== byId("title")) return;
  event.preventDefault();
  work.player.toggle();
});
addEventListener("beforeunload", (event) => {
  if (job) event.preventDefault();
});

load();
