// Writes that leave together at the end of a turn of the event loop.
import type { Duplex } from 'node:stream';

let corked: Duplex[] = [];

/**
 * Holds what is written to a connection until the turn is over: all that is ready is handled first, then everything is
 * sent in one go. A peer that reads many of the connections is woken once, not once for each: half of a small request's
 * cost is the waking. With one request at a time there is nothing to wait for.
 */
export function holdUntilTurnEnds(socket: Duplex): void {
  if (corked.length === 0) setImmediate(release);
  socket.cork();
  corked.push(socket);
}

function release(): void {
  const sockets = corked;
  corked = [];
  for (const socket of sockets) socket.uncork();
}
