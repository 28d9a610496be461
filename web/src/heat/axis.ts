// The address axis of a process: its spans joined, gaps left out ("packed bytes", from 0 to the sum of lengths).
//
// Addresses need 64 bits and are bigints. Packed positions are numbers: no process maps more than 2^53 bytes of what it
// shows here.

import type { Mapping, Span } from "../types";

interface Piece {
  start: bigint;
  end: bigint;
  /** Packed position of `start`. */
  at: number;
}

/** A run of neighbouring mappings with one name, as the side of the map shows it. */
export interface NamedRun {
  name: string;
  lo: number;
  hi: number;
}

export function hex(text: string): bigint {
  return BigInt(`0x${text}`);
}

export class AddressAxis {
  readonly total: number;
  private readonly pieces: Piece[] = [];

  constructor(spans: readonly Span[]) {
    let at = 0;
    for (const span of spans) {
      const [start, end] = [hex(span.start), hex(span.end)];
      this.pieces.push({ start, end, at });
      at += Number(end - start);
    }
    this.total = at;
  }

  /** Packed positions at which one span ends and the next begins. */
  joints(): number[] {
    return this.pieces.slice(1).map((piece) => piece.at);
  }

  /** The packed position of an address; of one in a gap, that of the next span. */
  toPacked(address: bigint): number {
    const piece = this.pieces[this.search((p) => p.end > address)];
    if (!piece) return this.total;
    return address <= piece.start ? piece.at : piece.at + Number(address - piece.start);
  }

  /** The address at a packed position. */
  toAddress(packed: number): bigint {
    const at = Math.max(0, Math.floor(packed));
    const piece = this.pieces[this.search((p) => p.at > at) - 1];
    if (!piece) return 0n;
    const address = piece.start + BigInt(at - piece.at);
    return address < piece.end ? address : piece.end;
  }

  /** Mappings on this axis, neighbours of one name joined, in its order. */
  runs(mappings: readonly Mapping[]): NamedRun[] {
    const runs: NamedRun[] = [];
    for (const mapping of mappings) {
      const [lo, hi] = [this.toPacked(hex(mapping.start)), this.toPacked(hex(mapping.end))];
      const last = runs.at(-1);
      if (hi <= lo) continue;
      if (last && last.name === mapping.name && last.hi === lo) last.hi = hi;
      else runs.push({ name: mapping.name, lo, hi });
    }
    return runs;
  }

  /** Index of the first piece for which `test` holds. It must hold for all after it. */
  private search(test: (piece: Piece) => boolean): number {
    let [lo, hi] = [0, this.pieces.length];
    while (lo < hi) {
      const middle = (lo + hi) >> 1;
      if (test(this.pieces[middle] as Piece)) hi = middle;
      else lo = middle + 1;
    }
    return lo;
  }
}
