// Where the page starts: read the run that is embedded in it, then show it.

import { render } from "preact";

import { loadRun } from "./data/load";
import "./style.css";
import { App } from "./views/App";

const root = document.getElementById("report")!;
const embedded = document.getElementById("assay-data")!;

try {
  const run = await loadRun(embedded.textContent ?? "");
  embedded.remove(); // a large run need not be in memory twice
  document.title = `Assay: ${run.info.id}`;
  root.replaceChildren();
  render(<App run={run} />, root);
  root.dataset["ready"] = "";
} catch (error) {
  root.textContent = `This report cannot be shown: ${error instanceof Error ? error.message : String(error)}`;
  throw error;
}
