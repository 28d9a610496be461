// Wheel, mouse, touch and keys on the map, as zooming, panning and pointing. Knows no times and no addresses: places and
// distances are fractions of the plot.

import type { Rect } from "./paint";

export interface GestureEvents {
  /** A factor of 0.5 shows half as much: of time, and of addresses. */
  zoom: (at: [number, number], factors: [number, number]) => void;
  pan: (by: [number, number]) => void;
  /** The pointer rests here; null: it has left. */
  point: (at: [number, number] | null) => void;
  key: (name: "reset" | "newest" | "oldest" | "describe" | "dismiss") => void;
}

/** One step of a key or a button. */
export const ZOOM_STEP = 1.5;
const PAN_STEP = 0.15;
/** A notch of a wheel is 100 to 120 units. */
const WHEEL_RATE = 0.0025;
const LINE_UNITS = 40;
/** Fingers closer than this along an axis do not zoom it: a small tremble would be a large factor. */
const MIN_PINCH_PX = 32;

export class Gestures {
  private readonly pointers = new Map<number, [number, number]>();
  private readonly stop = new AbortController();

  constructor(
    private readonly element: HTMLElement,
    private readonly plot: () => Rect,
    private readonly events: GestureEvents,
  ) {
    const { signal } = this.stop;
    element.addEventListener("wheel", (event) => this.wheel(event), { passive: false, signal });
    element.addEventListener("pointerdown", (event) => this.down(event), { signal });
    element.addEventListener("pointermove", (event) => this.move(event), { signal });
    for (const end of ["pointerup", "pointercancel"] as const) {
      element.addEventListener(end, (event) => this.up(event), { signal });
    }
    element.addEventListener("pointerleave", () => events.point(null), { signal });
    element.addEventListener("dblclick", (event) => events.zoom(this.place(event.clientX, event.clientY), [0.5, 0.5]), { signal });
    element.addEventListener("keydown", (event) => this.key(event), { signal });
  }

  destroy(): void {
    this.stop.abort();
  }

  private place(clientX: number, clientY: number): [number, number] {
    const box = this.element.getBoundingClientRect();
    const plot = this.plot();
    return [(clientX - box.left - plot.x) / plot.width, (clientY - box.top - plot.y) / plot.height];
  }

  private wheel(event: WheelEvent): void {
    event.preventDefault();
    const unit = event.deltaMode === WheelEvent.DOM_DELTA_PIXEL ? 1 : LINE_UNITS;
    // With shift, some systems turn the wheel sideways.
    const sideways = !event.shiftKey && Math.abs(event.deltaX) > Math.abs(event.deltaY);
    if (sideways) {
      this.events.pan([(event.deltaX * unit) / this.plot().width, 0]);
      return;
    }
    const factor = Math.exp((event.deltaY || event.deltaX) * unit * WHEEL_RATE);
    const both = event.ctrlKey === event.shiftKey;
    const factors: [number, number] = [both || event.ctrlKey ? factor : 1, both || event.shiftKey ? factor : 1];
    this.events.zoom(this.place(event.clientX, event.clientY), factors);
  }

  private down(event: PointerEvent): void {
    if (event.pointerType === "mouse" && event.button !== 0) return;
    this.element.setPointerCapture(event.pointerId);
    this.pointers.set(event.pointerId, [event.clientX, event.clientY]);
    this.element.classList.add("dragged");
    if (event.pointerType !== "mouse") this.events.point(this.place(event.clientX, event.clientY));
  }

  private up(event: PointerEvent): void {
    this.pointers.delete(event.pointerId);
    if (this.pointers.size === 0) this.element.classList.remove("dragged");
  }

  private move(event: PointerEvent): void {
    const before = this.pointers.get(event.pointerId);
    const now: [number, number] = [event.clientX, event.clientY];
    if (!before) {
      this.events.point(this.place(...now));
      return;
    }
    const other = [...this.pointers].find(([id]) => id !== event.pointerId)?.[1];
    this.pointers.set(event.pointerId, now);
    this.events.point(null);
    if (other) this.pinch(before, now, other);
    else this.drag(before, now, 1);
  }

  private drag(before: [number, number], now: [number, number], part: number): void {
    const plot = this.plot();
    this.events.pan([(part * (before[0] - now[0])) / plot.width, (part * (before[1] - now[1])) / plot.height]);
  }

  /** Each axis zooms by how far the fingers are apart along it. */
  private pinch(before: [number, number], now: [number, number], other: [number, number]): void {
    const factor = (axis: 0 | 1): number => {
      const [old, apart] = [Math.abs(before[axis] - other[axis]), Math.abs(now[axis] - other[axis])];
      return Math.min(old, apart) < MIN_PINCH_PX ? 1 : old / apart;
    };
    this.events.zoom(this.place((now[0] + other[0]) / 2, (now[1] + other[1]) / 2), [factor(0), factor(1)]);
    // The middle moves half as far as the finger.
    this.drag(before, now, 0.5);
  }

  private key(event: KeyboardEvent): void {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const middle: [number, number] = [0.5, 0.5];
    const actions: Record<string, () => void> = {
      "+": () => this.events.zoom(middle, [1 / ZOOM_STEP, 1 / ZOOM_STEP]),
      "=": () => this.events.zoom(middle, [1 / ZOOM_STEP, 1 / ZOOM_STEP]),
      "-": () => this.events.zoom(middle, [ZOOM_STEP, ZOOM_STEP]),
      ArrowLeft: () => (event.shiftKey ? this.events.zoom(middle, [ZOOM_STEP, 1]) : this.events.pan([-PAN_STEP, 0])),
      ArrowRight: () => (event.shiftKey ? this.events.zoom(middle, [1 / ZOOM_STEP, 1]) : this.events.pan([PAN_STEP, 0])),
      ArrowUp: () => (event.shiftKey ? this.events.zoom(middle, [1, 1 / ZOOM_STEP]) : this.events.pan([0, -PAN_STEP])),
      ArrowDown: () => (event.shiftKey ? this.events.zoom(middle, [1, ZOOM_STEP]) : this.events.pan([0, PAN_STEP])),
      "0": () => this.events.key("reset"),
      Home: () => this.events.key("oldest"),
      End: () => this.events.key("newest"),
      Enter: () => this.events.key("describe"),
      Escape: () => this.events.key("dismiss"),
    };
    const action = actions[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  }
}
