// The overview as a table, read again for each snapshot.

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

function size(bytes) {
  let unit = 0;
  for (; bytes >= 1024 && unit + 1 < UNITS.length; unit += 1) bytes /= 1024;
  return `${bytes.toFixed(unit > 0 ? 1 : 0)} ${UNITS[unit]}`;
}

function row(process) {
  const classes = process.classes;
  const sizes = [process.resident_bytes, classes.hot, classes.warm, classes.cold, classes.idle, classes.unmeasured, process.wss["1m"]];
  const line = document.createElement("tr");
  for (const text of [process.pid, process.comm, ...sizes.map(size)]) line.insertCell().textContent = text;
  return line;
}

async function show() {
  const state = document.getElementById("state");
  try {
    const answer = await fetch("api/overview");
    const overview = await answer.json();
    if (!answer.ok) throw new Error(overview.error);
    const host = overview.host;
    state.textContent = `${host.name}: ${host.source}, ${new Date(overview.at_ms).toLocaleTimeString()}, ${overview.lost_snapshots} snapshots lost`;
    const processes = overview.processes.sort((one, other) => other.classes.hot - one.classes.hot);
    document.getElementById("processes").replaceChildren(...processes.map(row));
  } catch (error) {
    state.textContent = String(error.message);
  }
}

const live = new EventSource("api/live");
live.addEventListener("snapshot", show);
live.addEventListener("error", () => { document.getElementById("state").textContent = "The server does not answer."; });
show();
