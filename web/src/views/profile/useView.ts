// The chosen view of a profile, which is the page's address too (#leaks): it can be sent, and the back button works.

import { useLayoutEffect, useState } from "preact/hooks";

export function useView(first: string): [string, (name: string) => void] {
  const ofAddress = () => decodeURIComponent(location.hash.slice(1)) || first;
  const [view, setView] = useState(ofAddress);
  useLayoutEffect(() => {
    const follow = () => setView(ofAddress());
    addEventListener("hashchange", follow);
    return () => removeEventListener("hashchange", follow);
  }, []);
  return [
    view,
    (name) => {
      location.hash = name;
      setView(name);
    },
  ];
}
