// Builds the report's template: one HTML file with everything inside, and a marker where Python puts a run.

import { defineConfig } from "vite";
import { viteSingleFile } from "vite-plugin-singlefile";

export default defineConfig({
  plugins: [viteSingleFile({ removeViteModuleLoader: true })],
  build: { target: "es2022", rolldownOptions: { input: "report.html" } },
});
