/* Shuffles, votes, matches and reductions between the lanes of a warp, as the interpreter's warp.py has them. */
#pragma once

#include "run.h"

enum shuffle { SHUFFLE_UP, SHUFFLE_DOWN, SHUFFLE_BFLY, SHUFFLE_IDX };
enum vote { VOTE_ALL, VOTE_ANY, VOTE_UNI };
enum reduction { REDUCE_ADD, REDUCE_MIN, REDUCE_MAX, REDUCE_AND, REDUCE_OR, REDUCE_XOR };

void shuffle(
    enum shuffle mode, const uint32_t *value, const uint32_t *by, const uint32_t *control, uint32_t *out,
    uint32_t *inside);
uint32_t mask_of(const uint32_t *predicate);
void vote(enum vote mode, uint32_t active, const uint32_t *predicate, const uint32_t *members, uint32_t *out);
void ballot(uint32_t active, const uint32_t *predicate, const uint32_t *members, uint32_t *out);
void match_any(uint32_t active, const uint64_t *value, const uint32_t *members, uint32_t *out);
void match_all(
    uint32_t active, const uint64_t *value, const uint32_t *members, uint32_t *out, uint32_t *agree);
void reduce(
    enum reduction mode, bool is_signed, uint32_t active, const uint32_t *value, const uint32_t *members,
    uint32_t *out);
