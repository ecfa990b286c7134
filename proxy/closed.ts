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

function forget(this: Duplex): void {
  this.removeAllListeners();
  this.on('error', ignore);
}

/**
 * Has a connection refer to no listener once it has closed. The runtime's handle of a TLS connection outlives two
 * collections of V8's young generation, since it counts as modified, and with it all that can be reached from there: what
 * a listener refers to would be copied twice for each connection.
 */
export function forgetListenersWhenClosed(socket: Duplex): void {
  socket.once('close', forget);
}
