// Browsers start no workers for pages that are opened as files. Search needs one, so it gets a frame.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      const home = new URL(address, location);
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inside = frame.contentWindow;
      const load = (script) =>
        new Promise((loaded) => {
          const element = inside.document.createElement("script");
          element.src = new URL(script, home);
          element.onload = loaded;
          inside.document.body.append(element);
        });
      inside.importScripts = (...scripts) => Promise.all(scripts.map(load));
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      this.ready = load(home).then(() => inside);
    }
    postMessage(data) {
      this.ready.then((inside) => inside.dispatchEvent(new MessageEvent("message", { data })));
    }
  };
}
