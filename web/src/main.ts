// Starts the page: header, line for errors, and the view that the address names. Everything else is below views/.

import "./app.css";
import { Live, type LinkState } from "./live";
import { format, parse } from "./router";
import { h, setText } from "./ui/dom";
import { Notice } from "./ui/notice";
import { themeField } from "./ui/theme";
import { OverviewView } from "./views/overview";
import { ProcessView } from "./views/process";

const LINK_WORDS: Record<LinkState["link"], string> = {
  connecting: "connecting",
  live: "connected",
  polling: "connected, every 5 s",
  lost: "not connected",
};

const live = new Live();
const notice = new Notice(live);
const main = h("main", { id: "main", tabindex: "-1" });
let view: OverviewView | ProcessView | null = null;
let shown = "";

function header(): HTMLElement {
  const home = h("a", { href: format({ view: "overview", tab: "processes", sort: "", filter: "" }), class: "home" }, ["Isotherm"]);
  const link = h("span", { class: "link", "data-link": "connecting" }, [LINK_WORDS.connecting]);
  live.states.add((state) => {
    link.dataset["link"] = state.link;
    setText(link, LINK_WORDS[state.link]);
  });
  const theme = h("label", { class: "theme" }, [h("span", { class: "muted" }, ["Theme"]), themeField()]);
  return h("header", { class: "top" }, [home, link, theme]);
}

/** Shows what the address names: a new view, or another state of the one that is shown. */
function route(): void {
  const wanted = parse(location.hash);
  const key = wanted.view === "process" ? `process ${wanted.id}` : "overview";
  if (view && key === shown) {
    if (wanted.view === "overview" && view instanceof OverviewView) view.apply(wanted);
    if (wanted.view === "process" && view instanceof ProcessView) view.apply(wanted);
    return;
  }
  const moved = view !== null;
  view?.destroy();
  notice.show("");
  document.title = "Isotherm";
  const onError = (message: string): void => notice.show(message);
  view = wanted.view === "process" ? new ProcessView(wanted, live, onError) : new OverviewView(wanted, live, onError);
  shown = key;
  main.replaceChildren(view.element);
  if (!moved) return;
  // As after loading a page: screen readers begin at the top of what is new.
  main.focus({ preventScroll: true });
  window.scrollTo(0, 0);
}

// The fragment holds the state of the view, so a link that skips to the text cannot be a plain fragment.
const skip = h("a", { href: "#main", class: "skip" }, ["Skip to content"], {
  click: (event) => {
    event.preventDefault();
    main.focus();
  },
});
document.body.append(skip, header(), notice.element, main);
live.returns.add(() => void view?.refresh());
// What nobody sees need not be current.
document.addEventListener("visibilitychange", () => {
  if (document.visibilityState === "hidden") return live.pause();
  live.start();
  void view?.refresh();
});
window.addEventListener("popstate", route);
window.addEventListener("hashchange", route);
route();
live.start();
