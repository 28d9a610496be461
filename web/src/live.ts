// The stream of `snapshot` events, kept alive, and whether the server can be reached.
//
// An EventSource reconnects by itself after a broken connection, but not after an answer that is an error (too many
// listeners, a restarted server behind a proxy). It does not show which of the two happened. So this closes it after
// any failure and asks the overview: if that answers, the page goes on by asking every few seconds (`polling`), and
// tries the stream again each time. Otherwise the server is `lost`.

import { ApiError, overview } from "./api";
import type { SnapshotEvent } from "./types";

export type Link = "connecting" | "live" | "polling" | "lost";

export interface LinkState {
  link: Link;
  /** When the next attempt is made (`performance.now`), while the server is lost. */
  retryAt: number;
  /** What failed last. */
  reason: string;
}

type Listener<T> = (value: T) => void;

const FIRST_RETRY_MS = 1000;
const MAX_RETRY_MS = 15_000;
const POLL_MS = 5000;

export class Live {
  readonly snapshots = new Set<Listener<SnapshotEvent>>();
  /** Called when the state changes, at once and after each failed attempt. */
  readonly states = new Set<Listener<LinkState>>();
  /** Called when the server is reached again: what was missed has to be read. */
  readonly returns = new Set<() => void>();
  state: LinkState = { link: "connecting", retryAt: 0, reason: "" };

  private source: EventSource | null = null;
  private timer = 0;
  private delay = FIRST_RETRY_MS;
  private lastMs = 0;

  start(): void {
    this.pause();
    const source = new EventSource("api/live");
    this.source = source;
    source.onopen = () => this.reached("live");
    source.onerror = () => {
      source.close();
      void this.ask();
    };
    source.addEventListener("snapshot", (event) => {
      const data = JSON.parse((event as MessageEvent<string>).data) as SnapshotEvent;
      this.lastMs = data.at_ms;
      for (const listener of this.snapshots) listener(data);
    });
  }

  /** Gives up the connection: browsers open six to a server, for all tabs together. */
  pause(): void {
    this.source?.close();
    clearTimeout(this.timer);
  }

  /** A view's request was not answered: find out whether the server is gone. */
  suspect(error: unknown): void {
    if (error instanceof ApiError && error.lost && this.state.link !== "lost") void this.ask();
  }

  private async ask(): Promise<void> {
    clearTimeout(this.timer);
    try {
      const data = await overview();
      this.reached("polling");
      this.timer = window.setTimeout(() => this.start(), POLL_MS);
      // Earlier than the last one: the clock was set back.
      if (data.at_ms === this.lastMs) return;
      this.lastMs = data.at_ms;
      const event = { at_ms: data.at_ms, ids: data.processes.map((process) => process.id) };
      for (const listener of this.snapshots) listener(event);
    } catch (error) {
      this.failed(error instanceof Error ? error.message : String(error));
    }
  }

  private reached(link: Link): void {
    const wasLost = this.state.link === "lost";
    this.delay = FIRST_RETRY_MS;
    this.set({ link, retryAt: 0, reason: "" });
    if (wasLost) for (const listener of this.returns) listener();
  }

  private failed(reason: string): void {
    this.set({ link: "lost", retryAt: performance.now() + this.delay, reason });
    this.timer = window.setTimeout(() => this.start(), this.delay);
    this.delay = Math.min(2 * this.delay, MAX_RETRY_MS);
  }

  private set(state: LinkState): void {
    this.state = state;
    for (const listener of this.states) listener(state);
  }
}
