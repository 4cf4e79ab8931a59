"use strict";

/*
 * A subscription to a topic of `aiowheel serve` that loses nothing.
 *
 * The browser reconnects by itself after a lost connection, and then sends the id of the last event,
 * so that the service goes on after it. After an answer other than 200 (the service is full, or shuts
 * down) it gives up: then this class connects again, with the position in the address.
 */
class Topic {
  /**
   * @param {string} url The topic's address, such as http://127.0.0.1:8080/topics/news
   * @param {(data: unknown, version: number) => void} onMessage Called for each message, in order.
   * @param {(reason: string) => void} onLoss Called when messages were dropped, or the topic was lost.
   * @param {(open: boolean) => void} onState Called when the connection opens or is lost.
   */
  constructor(url, onMessage, onLoss, onState) {
    Object.assign(this, { url, onMessage, onLoss, onState });
    this.since = "since=0";
    this.connect();
  }

  connect() {
    this.source = new EventSource(`${this.url}?${this.since}`);
    this.source.onopen = () => this.onState(true);
    this.source.onmessage = (event) => this.take(JSON.parse(event.data));
    this.source.onerror = () => {
      this.onState(false);
      if (this.source.readyState === EventSource.CLOSED) {
        this.retry = setTimeout(() => this.connect(), 1000 + 4000 * Math.random());
      }
    };
  }

  take(answer) {
    this.since = `since=${answer.version}` + (answer.epoch && `&epoch=${answer.epoch}`);
    if (answer.reset) this.onLoss("the topic began anew");
    if (answer.missed) this.onLoss(`${answer.missed} messages are no longer kept`);
    for (const { data, version } of answer.messages) this.onMessage(data, version);
  }

  close() {
    clearTimeout(this.retry);
    this.source.close();
  }
}
