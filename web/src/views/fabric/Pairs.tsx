// Links and the pairs of hosts whose flows cross them.

import type { SharedLink } from "../../data/plan";

const SHOWN_LINKS = 200;
const SHOWN_PAIRS = 40; // of a link

export function Pairs({ links }: { links: SharedLink[] }) {
  return (
    <div class="table-box scrolled">
      <table class="pairs" aria-label="Pairs that share a link">
        <thead>
          <tr>
            <th>link</th>
            <th>flows</th>
            <th>pairs</th>
          </tr>
        </thead>
        <tbody>
          {links.slice(0, SHOWN_LINKS).map((link) => (
            <tr key={link.name}>
              <td>{link.name}</td>
              <td>{link.load}</td>
              <td>{pairsText(link)}</td>
            </tr>
          ))}
        </tbody>
        {links.length > SHOWN_LINKS && (
          <tfoot>
            <tr>
              <td colSpan={3}>and {links.length - SHOWN_LINKS} more links</td>
            </tr>
          </tfoot>
        )}
      </table>
    </div>
  );
}

function pairsText({ pairs }: SharedLink): string {
  const pairTexts = pairs.slice(0, SHOWN_PAIRS).map(([source, target]) => `${source} → ${target}`);
  const more = pairs.length > SHOWN_PAIRS ? ` and ${pairs.length - SHOWN_PAIRS} more` : "";
  return pairTexts.join(", ") + more;
}
