// The theme: light or dark as the system prefers, and always light in print. Colours are defined once, as
// CSS custom properties; charts read them from there. The ramp and the series' colours are safe for
// colour-blind readers (blue against orange), and series differ in symbol as well.

import { useLayoutEffect, useState } from "preact/hooks";

type Theme = "light" | "dark";

const prefersDark = matchMedia("(prefers-color-scheme: dark)");
let printing = false;

/** Returns the theme and puts it on the root element, whose style sheet depends on it. */
function currentTheme(): Theme {
  const theme = prefersDark.matches && !printing ? "dark" : "light";
  document.documentElement.dataset["theme"] = theme;
  return theme;
}

/** Returns the theme; the component renders again when it changes. Call it where colours are read. */
export function useTheme(): Theme {
  const [theme, setTheme] = useState(currentTheme);
  useLayoutEffect(() => {
    const update = () => setTheme(currentTheme());
    prefersDark.addEventListener("change", update);
    addEventListener("assay-print", update);
    return () => {
      prefersDark.removeEventListener("change", update);
      removeEventListener("assay-print", update);
    };
  }, []);
  return theme;
}

/** True while the page is being printed: paper does not scroll, so lists must then be complete. */
export function usePrinting(): boolean {
  const [state, setState] = useState(printing);
  useLayoutEffect(() => {
    const update = () => setState(printing);
    addEventListener("assay-print", update);
    return () => removeEventListener("assay-print", update);
  }, []);
  return state;
}

// The browser's two print events become one of the page's own, sent after `printing` has changed.
for (const [event, value] of [
  ["beforeprint", true],
  ["afterprint", false],
] as const) {
  addEventListener(event, () => {
    printing = value;
    dispatchEvent(new Event("assay-print"));
  });
}

/** A colour of the theme: colour("ink") is the custom property --ink. Returns its text, such as "#14171c". */
export function colour(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

export type Rgb = [number, number, number];

/** Parses "#rrggbb". */
function rgb(hex: string): Rgb {
  return [1, 3, 5].map((position) => parseInt(hex.slice(position, position + 2), 16)) as Rgb;
}

/** The diverging colour scale from worst over median to best, in 256 linear steps; rampColour reads it. */
export function ramp(): Rgb[] {
  const stops = ["worst", "worse", "median", "better", "best"].map((name) =>
    rgb(colour(`ramp-${name}`)),
  );
  return Array.from({ length: 256 }, (_, step) => {
    const position = (step / 255) * (stops.length - 1);
    const low = Math.min(Math.floor(position), stops.length - 2);
    return [0, 1, 2].map((c) =>
      Math.round(stops[low]![c]! + (stops[low + 1]![c]! - stops[low]![c]!) * (position - low)),
    ) as Rgb;
  });
}

/** The colour of a relative deviation from the median (-0.1: 10 % worse); the ramp ends at ±`range`. */
export function rampColour(steps: Rgb[], deviation: number, range: number): Rgb {
  const position = Math.max(0, Math.min(1, deviation / range / 2 + 0.5));
  return steps[Math.round(position * 255)]!;
}
