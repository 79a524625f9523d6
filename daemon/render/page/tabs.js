// The tabs below the flame graph. Which one is open is part of the selection; they report what is picked by `onopen`.

class Tabs {
  constructor(onopen) {
    this.tabs = [...document.querySelectorAll("[role=tab]")];
    for (const [at, tab] of this.tabs.entries()) {
      tab.addEventListener("click", () => onopen(tab.dataset.view));
      tab.addEventListener("keydown", (event) => {
        const step = Number(event.key === "ArrowRight") - Number(event.key === "ArrowLeft");
        if (!step) return;
        const next = this.tabs[(at + step + this.tabs.length) % this.tabs.length];
        onopen(next.dataset.view);
        next.focus();
      });
    }
  }

  /** Open a view, the first one where there is none of this name, and return the name of the one that is open. */
  show(view) {
    const open = this.tabs.find((tab) => tab.dataset.view === view) ?? this.tabs[0];
    for (const tab of this.tabs) {
      tab.setAttribute("aria-selected", String(tab === open));
      tab.tabIndex = tab === open ? 0 : -1;
      byId(`view-${tab.dataset.view}`).hidden = tab !== open;
    }
    return open.dataset.view;
  }
}
