// A heap profile as the model of its views (see profile.ts).

import { HEAP_METRICS, type HeapPage, type HeapProfile } from "./heapProfile";
import { ProfileModel } from "./profile";

export class HeapModel extends ProfileModel {
  readonly profile: HeapProfile;

  constructor(readonly page: HeapPage) {
    super(page.profile.tree, page.sources, page.source_problems, HEAP_METRICS);
    this.profile = page.profile;
  }
}
