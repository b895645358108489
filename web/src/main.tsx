// The entry point of the page: reads the embedded run, then shows it.

import { render } from "preact";

import { loadRun } from "./data/load";
import "./style.css";
import { App } from "./views/App";
import { subjectOf } from "./views/Banner";

const root = document.getElementById("report")!;
const embedded = document.getElementById("assay-data")!;

try {
  const run = await loadRun(embedded.textContent ?? "");
  embedded.remove(); // so that a large run is not in memory twice
  document.title = `${subjectOf(run)} · ${run.info.id} · Assay`;
  root.replaceChildren();
  render(<App run={run} />, root);
  document.getElementById(location.hash.slice(1))?.scrollIntoView(); // its section was not there before
  root.dataset["ready"] = "";
} catch (error) {
  root.textContent = `This report cannot be shown: ${error instanceof Error ? error.message : String(error)}`;
  throw error;
}
