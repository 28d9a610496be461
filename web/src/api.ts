// Requests to the server. All addresses are relative to the page, because the page lies below a secret token.
//
// A failure is an `ApiError` whose message states what was attempted. A lost connection has the status 0, so that the
// views can distinguish it from an answer.

import type { CellAnswer, Overview, Plan, ProcessDetail, Show } from "./types";

export class ApiError extends Error {
  constructor(
    message: string,
    readonly status: number,
    /** The current layout, where the answer is 409. */
    readonly layout: string | null = null,
  ) {
    super(message);
    this.name = "ApiError";
  }

  /** The server was not reached: worth another try. */
  get lost(): boolean {
    return this.status === 0;
  }
}

/** Whether an error only says that a newer request has replaced this one. */
export function isAbort(error: unknown): boolean {
  return error instanceof DOMException && error.name === "AbortError";
}

/** Longer than any answer takes: a server that is stopped keeps the connection open. */
export const TIMEOUT_MS = 15_000;

async function get(path: string, what: string, signal?: AbortSignal): Promise<Response> {
  const patience = AbortSignal.timeout(TIMEOUT_MS);
  let response: Response;
  try {
    response = await fetch(path, { signal: signal ? AbortSignal.any([signal, patience]) : patience });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ApiError(`${what}: the server does not answer`, 0);
  }
  if (response.ok) return response;
  const answer = (await response.json().catch(() => null)) as { error?: unknown; layout?: unknown } | null;
  const reason = typeof answer?.error === "string" ? answer.error : `the server answered ${response.status}`;
  throw new ApiError(`${what}: ${reason}`, response.status, typeof answer?.layout === "string" ? answer.layout : null);
}

async function json<T>(path: string, what: string, signal?: AbortSignal): Promise<T> {
  const response = await get(path, what, signal);
  try {
    return (await response.json()) as T;
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ApiError(`${what}: the answer is cut short or not JSON`, 0);
  }
}

export function overview(signal?: AbortSignal): Promise<Overview> {
  return json("api/overview", "read the overview", signal);
}

export function plan(signal?: AbortSignal): Promise<Plan> {
  return json("api/plan", "read the plan", signal);
}

/** The address of a heat map as a file, with what is shown of it. */
export function pictureHref(id: string, shown: Record<string, string>): string {
  return `api/picture/${encodeURIComponent(id)}?${new URLSearchParams(shown)}`;
}

export function processDetail(id: string, signal?: AbortSignal): Promise<ProcessDetail> {
  return json(`api/process/${encodeURIComponent(id)}`, `read process ${id}`, signal);
}

/** The region at an address (hex) and a time. */
export function cell(id: string, atMs: number, address: string, signal?: AbortSignal): Promise<CellAnswer> {
  const query = new URLSearchParams({ at: String(Math.round(atMs)), addr: address });
  return json(`api/cell/${encodeURIComponent(id)}?${query}`, `read the region at ${address}`, signal);
}

/** A rectangle of cells: time in milliseconds, packed bytes, and the number of cells each way. */
export interface TileRequest {
  layout: string;
  show: Show;
  fromMs: number;
  toMs: number;
  lo: number;
  hi: number;
  columns: number;
  rows: number;
}

export interface TileAnswer {
  /** Column by column, low addresses first. */
  values: Uint8Array;
  /** The newest snapshot in it. */
  newestMs: number;
}

export async function tile(id: string, wanted: TileRequest, signal?: AbortSignal): Promise<TileAnswer> {
  const query = new URLSearchParams({
    layout: wanted.layout,
    from: String(wanted.fromMs),
    to: String(wanted.toMs),
    lo: String(wanted.lo),
    hi: String(wanted.hi),
    w: String(wanted.columns),
    h: String(wanted.rows),
    show: wanted.show,
  });
  const what = `read a part of the heat map of ${id}`;
  const response = await get(`api/tile/${encodeURIComponent(id)}?${query}`, what, signal);
  let values: Uint8Array;
  try {
    values = new Uint8Array(await response.arrayBuffer());
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ApiError(`${what}: the answer is cut short`, 0);
  }
  if (values.length !== wanted.columns * wanted.rows) {
    throw new ApiError(`${what}: ${values.length} cells instead of ${wanted.columns * wanted.rows}`, 500);
  }
  return { values, newestMs: Number(response.headers.get("X-Tile-Newest-Ms") ?? 0) };
}
