/* Another process on the card: contexts take turns there, each has the whole card for a slice of time, and what runs
 * meanwhile stands still. Asked for by EMULATED_CARD_NEIGHBOUR=busy/period, both in microseconds: once in each period,
 * at a moment drawn anew, the other one is on for so long. */
#pragma once

/* When work can begin that would begin at `ns`: then, or when the other one's slice ends. */
double card_turn_begins(double ns);
/* When work ends that would end at `end_ns` without the other one. It begins at `start_ns`, which is in no slice. */
double card_turn_ends(double start_ns, double end_ns);
