// WebSocket frames through a rewriter, as its owner would put them through.
import type { FrameRewriter } from '../../proxy/swap/websocket-steps.ts';

/** All that bytes become. Rejects with what a step throws. */
export async function rewriteFrames(rewriter: FrameRewriter, bytes: Buffer): Promise<Buffer[]> {
  const frames: Buffer[] = [];
  rewriter.take(Buffer.from(bytes));
  while (!rewriter.isDone) frames.push(...(await rewriter.step()));
  return frames;
}
