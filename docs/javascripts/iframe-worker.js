// Search for pages that were opened as files, where browsers start no worker: its script
// runs in a hidden frame and answers by messages, as a worker does.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      const there = new Promise((resolve) => (this.frame.onload = resolve));
      document.body.append(this.frame);
      this.ready = there.then(() => this.run(url));
    }

    run(url) {
      const inside = this.frame.contentWindow;
      inside.postMessage = (data) =>
        this.dispatchEvent(new MessageEvent("message", { data }));
      inside.importScripts = (...urls) =>
        urls.reduce((before, each) => before.then(() => this.load(each)), Promise.resolve());
      return this.load(url);
    }

    load(url) {
      const page = this.frame.contentDocument;
      return new Promise((resolve, reject) => {
        const script = page.createElement("script");
        Object.assign(script, { src: url, onload: resolve, onerror: reject });
        page.body.append(script);
      });
    }

    postMessage(data) {
      this.ready.then(() =>
        this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })),
      );
    }

    terminate() {
      this.frame.remove();
    }
  };
}
