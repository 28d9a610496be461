// Reads something anew whenever it has changed: not more often than views need it, and never twice at once.
//
// An answer that is under way is awaited, however long it takes. To ask anew instead would show nothing at all where answers take longer
// than the time between two snapshots.

export class Reads {
  private timer = 0;
  private readAt = -Infinity;
  private reading = false;
  /** Something has changed since the request that is under way. */
  private again = false;
  private ended = false;

  constructor(
    private readonly minMs: number,
    /** Handles its own failures. */
    private readonly read: () => Promise<void>,
  ) {}

  /** Reads at once, or when the answer that is under way has come. */
  async now(): Promise<void> {
    clearTimeout(this.timer);
    this.timer = 0;
    if (this.reading) {
      this.again = true;
      return;
    }
    this.reading = true;
    this.readAt = performance.now();
    try {
      await this.read();
    } finally {
      this.reading = false;
      if (this.again) {
        this.again = false;
        this.soon();
      }
    }
  }

  /** Reads once the last request is long enough ago. */
  soon(): void {
    if (this.ended || this.timer !== 0) return;
    const wait = Math.max(0, this.readAt + this.minMs - performance.now());
    this.timer = window.setTimeout(() => void this.now(), wait);
  }

  /** Reads no more. A request that is under way is its owner's to abort. */
  end(): void {
    this.ended = true;
    clearTimeout(this.timer);
  }
}
