// The end of a connection, whoever has it: its errors, and what it still refers to.
import type { Duplex } from 'node:stream';

function ignore(): void {
  // Nothing of a closed connection can matter any more; without a listener an error of it would end the process.
}

function destroy(this: Duplex): void {
  this.destroy();
}

/** An error ends the connection, and nothing else. */
export function destroyOnError(connection: Duplex): void {
  connection.on('error', destroy);
}

function forget(this: Duplex & { _parent?: unknown }): void {
  this.removeAllListeners();
  this.on('error', ignore);
  // What a TLS connection ran over; null at other sockets.
  if (this._parent !== undefined) this._parent = null;
}

/**
 * Has a connection refer to no listener, and a TLS connection not to what it ran over, once it has closed. The runtime
 * gives the handle of each TLS connection an accessor of its own. V8 makes such a pair of functions in the old
 * generation, so it holds the connection until the next full collection, and all that can be reached from there is copied
 * for each one that has closed.
 */
export function forgetListenersWhenClosed(socket: Duplex): void {
  socket.once('close', forget);
}
