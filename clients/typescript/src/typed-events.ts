// An event emitter with typed events.

import { EventEmitter } from "node:events";

/** Listeners by event name; a class declares its events as argument lists. */
export class TypedEvents<Events extends Record<string, unknown[]>> {
  #emitter: EventEmitter | undefined;

  /** Calls the listener at every event. Returns this object. */
  on<Name extends keyof Events & string>(event: Name, listener: (...args: Events[Name]) => void): this {
    this.#listeners().on(event, listener as (...args: unknown[]) => void);
    return this;
  }

  /** Calls the listener at the next event only. */
  once<Name extends keyof Events & string>(event: Name, listener: (...args: Events[Name]) => void): this {
    this.#listeners().once(event, listener as (...args: unknown[]) => void);
    return this;
  }

  /** Removes a listener. */
  off<Name extends keyof Events & string>(event: Name, listener: (...args: Events[Name]) => void): this {
    this.#emitter?.off(event, listener as (...args: unknown[]) => void);
    return this;
  }

  /** @internal */
  emitEvent<Name extends keyof Events & string>(event: Name, ...args: Events[Name]): void {
    this.#emitter?.emit(event, ...args);
  }

  #listeners(): EventEmitter {
    if (!this.#emitter) {
      this.#emitter = new EventEmitter();
      this.#emitter.setMaxListeners(0);
    }
    return this.#emitter;
  }
}
