/* Search in pages that are opened from a folder: browsers start no Worker for file:, so an iframe stands in for it. */
if (location.protocol === "file:") {
  window.Worker = window.IFrameWorker = class IFrameWorker extends EventTarget {
    constructor(url) {
      super()
      this.frame = Object.assign(document.createElement("iframe"), { hidden: true })
      document.documentElement.append(this.frame)
      const inside = this.frame.contentWindow
      this.isReady = new Promise(resolve => {
        const script = Object.assign(inside.document.createElement("script"), { src: url, onload: resolve })
        script.onerror = () => this.dispatchEvent(new ErrorEvent("error", { message: `${url} cannot be loaded` }))
        inside.postMessage = message => this.dispatchEvent(new MessageEvent("message", { data: message }))
        inside.document.head.append(script)
      })
    }

    /* A copy of the message, as a Worker would get. */
    postMessage(message) {
      const data = structuredClone(message)
      this.isReady.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })))
    }

    terminate() {
      this.frame.remove()
    }
  }
}
