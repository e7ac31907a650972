// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The site's search runs in a Worker, and a browser makes none for a page that is read from the
// disk.  There a hidden frame takes its place: it runs the same script, and messages are events.
"use strict";

if (location.protocol === "file:") {
  class IFrameWorker extends EventTarget {
    constructor(script) {
      super();
      this.waiting = [];
      const address = new URL(script, location).href;
      document.readyState === "loading"
        ? addEventListener("DOMContentLoaded", () => this.begin(address))
        : this.begin(address);
    }

    begin(address) {
      const frame = document.createElement("iframe");
      frame.hidden = true;
      frame.title = "search";
      document.body.append(frame);
      const inside = frame.contentWindow;
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      const code = inside.document.createElement("script");
      code.src = address;
      code.addEventListener("load", () => {
        this.inside = inside;
        this.waiting.forEach((data) => this.postMessage(data));
      });
      inside.document.head.append(code);
    }

    postMessage(data) {
      if (this.inside) this.inside.dispatchEvent(new MessageEvent("message", { data }));
      else this.waiting.push(data);
    }
  }
  // The theme looks for this name.
  window.IFrameWorker = window.Worker = IFrameWorker;
}
