#include "relay.h"
#include "arguments.h"
#include "reduction.h"
#include "swaps.h"
#include <string.h>

/* From how many bytes on the interpreter is let go while they are copied or reduced. */
enum { RELAY_LONG = 64 << 10 };
/* The words of a record that are the same on all ranks: the number of the call, its digest and how much comes from each. */
enum { RELAY_WORDS_NBYTES = 24 };

/* ------------------------------------------------------------------ what goes along */

/* What the data comes to: what the root has, what that of all ranks comes to, or that of each behind the other's. */
typedef enum { NOTHING, SENT_BY_ROOT, SUMMED, GATHERED } Manner;

/* What goes along with one call. */
typedef struct {
    Manner manner;
    const Given *of; /* NULL for nothing */
    Kind wide;       /* the kind that it travels in */
    size_t count;    /* how many elements come from each rank that gives any */
    int given, taken;
    const Part *gives;    /* what this rank gives, one behind the other, */
    const Part *takes;    /* ... and takes, from the `first` element of the result on, one every so many elements; */
    size_t first, stride; /* 0 where they lie one behind the other */
} Load;

/* Of what was given; false if that is nothing that a relay knows. */
static bool relay_load(const Relay *relay, const Given *given, Load *load)
{
    *load = (Load){.manner = NOTHING};
    if (given == NULL || given->array == NULL)
        return true;
    int name = given->key.name, size = relay->size;
    bool is_root = relay->rank == given->root, spreads = name == BROADCAST || name == SCATTER;
    bool cuts = name == REDUCE_SCATTER || name == SCATTER || name == ALL_TO_ALL; /* each takes its part of what comes */
    load->manner = given_reduces(given) ? SUMMED : spreads ? SENT_BY_ROOT : GATHERED;
    load->of = given;
    load->wide = load->manner == SUMMED ? kernels_accumulation_kind(given->op, given->kind) : given->kind;
    load->count = given->whole.count * (size_t)(cuts ? size : 1);
    load->first = cuts ? given->whole.count * (size_t)relay->rank : 0;
    load->stride = name == ALL_TO_ALL ? load->count : 0;
    load->gives = load->takes = &given->whole;
    load->given = !spreads || is_root;
    load->taken = spreads ? cuts || !is_root : given->root < 0 || is_root;
    if (given->many > 0 && cuts) {
        load->given = size;
        load->gives = given->parts;
    }
    if (given->many > 0 && (!cuts || name == ALL_TO_ALL)) { /* of an all_to_all behind what this rank gives */
        load->taken = size;
        load->takes = given->parts + given->many - size;
    }
    bool alike = true;
    for (int i = 0; i < given->many; i++)
        alike = alike && given->parts[i].count == given->whole.count;
    return alike;
}

/* ------------------------------------------------------------------ what lies where */

static int relay_host_size(const Relay *relay, int host)
{
    return relay->starts[host + 1] - relay->starts[host];
}

static int relay_home(const Relay *relay, int rank)
{
    for (int host = 0; host < relay->hosts; host++)
        for (int i = relay->starts[host]; i < relay->starts[host + 1]; i++)
            if (relay->ranks[i] == rank)
                return host;
    return -1;
}

/* Of a host's rank by its place there: record and data, or on the first rank all records and the result. */
static unsigned char *relay_area(const Relay *relay, int place, unsigned long long parity)
{
    if (relay->board != NULL)
        return board_area(relay->board, place, parity);
    return relay->areas + (parity & 1) * ((size_t)relay->size * WIRE_RECORD_NBYTES + relay->along_nbytes);
}

static const unsigned char *relay_row(const Relay *relay, int host)
{
    return host == relay->here ? relay->row : wire_room(relay->wire, host);
}

/* How many bytes come from each rank that gives any. */
static size_t relay_nbytes(const Load *load)
{
    return load->count * kernels_kind_nbytes(load->wide);
}

/* How many bytes of data come with the records of a host. */
static size_t relay_along(const Relay *relay, const Load *load, int host)
{
    if (load->manner == NOTHING || (load->manner == SENT_BY_ROOT && relay_home(relay, load->of->root) != host))
        return 0;
    return relay_nbytes(load) * (size_t)(load->manner == GATHERED ? relay_host_size(relay, host) : 1);
}

bool relay_fits(const Relay *relay, const Given *given)
{
    Load load;
    if (relay->turn->closed || !relay_load(relay, given, &load))
        return false;
    size_t most = relay->along_nbytes / (size_t)(load.manner == GATHERED ? relay->size : 1);
    return load.manner == NOTHING || (relay_nbytes(&load) <= most && (load.manner != SUMMED || kernels_merge_of(given->op, load.wide) != NULL));
}

static PyThreadState *relay_let_go(const Load *load)
{
    return load->manner != NOTHING && relay_nbytes(load) >= RELAY_LONG ? PyEval_SaveThread() : NULL;
}

static void relay_take_back(PyThreadState *let_go)
{
    if (let_go != NULL)
        PyEval_RestoreThread(let_go);
}

/* ------------------------------------------------------------------ at the board of this host */

static unsigned long long relay_flip(Relay *relay, Call *call)
{
    return relay->board != NULL ? collectives_flip(call) : (relay->parity ^= 1);
}

/* Let all ranks of this host come to a step, which is a call of its group. */
static Ending relay_meet(const Relay *relay, Call *call, uint64_t step[RECORD_WORDS])
{
    if (relay->board == NULL)
        return DONE;
    if (!arguments_next_number(relay->sequence, &step[SEQUENCE]))
        return BROKEN;
    call->about = step;
    Ending ending = collectives_exchange(call);
    return ending == UNLIKE ? GARBLED : ending;
}

static void relay_write(unsigned char *slot, const uint64_t about[RECORD_WORDS], const Load *load)
{
    memcpy(slot, about, WIRE_RECORD_NBYTES);
    unsigned char *to = slot + WIRE_RECORD_NBYTES;
    for (int i = 0; i < load->given; i++) {
        kernels_widen(to, load->gives[i].bytes, load->of->kind, load->wide, load->gives[i].count);
        to += load->gives[i].count * kernels_kind_nbytes(load->wide);
    }
}

/* Finish some of what all have reduced, or take what others have given. */
static void relay_read_part(const Relay *relay, const unsigned char *from, const Load *load, Part part)
{
    Kind kind = load->of->kind;
    size_t item = kernels_kind_nbytes(kind), wide_item = kernels_kind_nbytes(load->wide);
    unsigned char scratch[REDUCTION_NBYTES];
    for (size_t done = 0, step = REDUCTION_NBYTES / wide_item; done < part.count; done += step) {
        size_t now = part.count - done < step ? part.count - done : step;
        void *into = load->wide == kind ? part.bytes + done * item : scratch;
        memcpy(into, from + done * wide_item, now * wide_item);
        if (load->manner == SUMMED && load->of->op == AVG)
            kernels_average(into, load->wide, now, relay->size);
        if (into == scratch)
            kernels_narrow(part.bytes + done * item, scratch, kind, load->wide, now);
    }
}

static void relay_read(const Relay *relay, const unsigned char *result, const Load *load)
{
    size_t wide_item = kernels_kind_nbytes(load->wide), at = load->first;
    for (int i = 0; i < load->taken; i++) {
        relay_read_part(relay, result + at * wide_item, load, load->takes[i]);
        at += load->stride > 0 ? load->stride : load->takes[i].count;
    }
}

/* ------------------------------------------------------------------ on the first ranks */

/* Where the data of one of several contributors lies. */
typedef const unsigned char *(*Source)(const Relay *relay, int which, unsigned long long parity);

static const unsigned char *relay_data_of_rank(const Relay *relay, int which, unsigned long long parity)
{
    return relay_area(relay, which, parity) + WIRE_RECORD_NBYTES;
}

static const unsigned char *relay_data_of_host(const Relay *relay, int which, unsigned long long parity)
{
    (void)parity;
    return relay_row(relay, which) + relay->head;
}

static void relay_merge(const Relay *relay, unsigned char *total, Source source, int count, unsigned long long parity, const Load *load)
{
    Merge merge = kernels_merge_of(load->of->op, load->wide);
    size_t item = kernels_kind_nbytes(load->wide), step = REDUCTION_NBYTES / item;
    for (size_t done = 0; done < load->count; done += step) {
        size_t now = load->count - done < step ? load->count - done : step, at = done * item;
        const unsigned char *sum = source(relay, 0, parity) + at;
        for (int which = 1; which < count; which++, sum = total + at)
            merge(total + at, sum, source(relay, which, parity) + at, now);
        if (count == 1)
            memcpy(total + at, sum, now * item);
    }
}

/* Put together what this host has written. */
static void relay_fill_row(const Relay *relay, unsigned long long parity, const Load *load)
{
    int count = relay_host_size(relay, relay->here);
    for (int place = 0; place < count; place++)
        memcpy(relay->row + WIRE_RECORD_NBYTES * (size_t)place, relay_area(relay, place, parity), WIRE_RECORD_NBYTES);
    size_t nbytes = relay_nbytes(load);
    unsigned char *data = relay->row + relay->head;
    if (relay_along(relay, load, relay->here) == 0)
        return;
    if (load->manner == SUMMED) {
        relay_merge(relay, data, relay_data_of_rank, count, parity, load);
        return;
    }
    for (int place = 0; place < count; place++)
        if (load->manner == GATHERED)
            memcpy(data + nbytes * (size_t)place, relay_data_of_rank(relay, place, parity), nbytes);
        else if (relay->ranks[relay->starts[relay->here] + place] == load->of->root)
            memcpy(data, relay_data_of_rank(relay, place, parity), nbytes);
}

/* Whether all ranks make the same call with as much data along, as far as their own words tell. */
static bool relay_alike(const Relay *relay)
{
    for (int host = 0; host < relay->hosts; host++)
        for (int place = 0; place < relay_host_size(relay, host); place++)
            if (memcmp(relay_row(relay, host) + WIRE_RECORD_NBYTES * (size_t)place, relay->row, RELAY_WORDS_NBYTES) != 0)
                return false;
    return true;
}

/* Write all records, and what the data of all hosts comes to. */
static void relay_fill_answer(const Relay *relay, unsigned char *answer, const Load *load, bool alike)
{
    for (int host = 0; host < relay->hosts; host++)
        for (int i = relay->starts[host]; i < relay->starts[host + 1]; i++) {
            size_t place = (size_t)(i - relay->starts[host]);
            memcpy(answer + WIRE_RECORD_NBYTES * (size_t)relay->ranks[i], relay_row(relay, host) + WIRE_RECORD_NBYTES * place,
                   WIRE_RECORD_NBYTES);
        }
    unsigned char *result = answer + WIRE_RECORD_NBYTES * (size_t)relay->size;
    size_t nbytes = relay_nbytes(load);
    if (!alike || load->manner == NOTHING)
        return; /* of hosts that differ the data makes no sense */
    if (load->manner == SUMMED)
        relay_merge(relay, result, relay_data_of_host, relay->hosts, 0, load);
    else if (load->manner == SENT_BY_ROOT)
        memcpy(result, relay_data_of_host(relay, relay_home(relay, load->of->root), 0), nbytes);
    for (int host = 0; host < relay->hosts && load->manner == GATHERED; host++)
        for (int i = relay->starts[host]; i < relay->starts[host + 1]; i++)
            memcpy(result + nbytes * (size_t)relay->ranks[i],
                   relay_data_of_host(relay, host, 0) + nbytes * (size_t)(i - relay->starts[host]), nbytes);
}

/* Swap what whole hosts have written. */
static Ending relay_ask_others(Relay *relay, Call *call, unsigned long long parity, const Load *load)
{
    PyThreadState *let_go = relay_let_go(load);
    relay_fill_row(relay, parity, load);
    relay_take_back(let_go);
    Swap swap = {.wire = relay->wire, .about = (const uint64_t *)(void *)relay->row, .deadline = &call->deadline};
    size_t rest = relay->head - WIRE_RECORD_NBYTES; /* of the records, behind this rank's own */
    for (int k = 1; k < relay->hosts; k++) {
        int peer = (relay->here + k) % relay->hosts;
        swaps_address(&swap, k, relay->row + WIRE_RECORD_NBYTES, rest + relay_along(relay, load, relay->here),
                      rest + relay_along(relay, load, peer));
    }
    bool misfit = false;
    if (!swaps_trade(&swap, &misfit))
        return BROKEN;
    bool alike = relay_alike(relay);
    if (alike && misfit)
        return GARBLED;
    unsigned char *answer = relay_area(relay, 0, relay_flip(relay, call));
    let_go = relay_let_go(load);
    relay_fill_answer(relay, answer, load, alike);
    relay_take_back(let_go);
    return DONE;
}

/* ------------------------------------------------------------------ all of it */

/* Bring together what all ranks say of a call, and what goes along; `answer` is where it is then. */
static Ending relay_exchange(Relay *relay, Call *call, const uint64_t about[RECORD_WORDS], const Load *load, const unsigned char **answer)
{
    unsigned long long parity = relay_flip(relay, call);
    PyThreadState *let_go = relay_let_go(load);
    relay_write(relay_area(relay, relay->board == NULL ? 0 : relay->board->rank, parity), about, load);
    relay_take_back(let_go);
    Ending ending = relay_meet(relay, call, relay->gather);
    if (ending == DONE && relay->wire != NULL)
        ending = relay_ask_others(relay, call, parity, load);
    else if (ending == DONE)
        relay_flip(relay, call);
    if (ending == DONE)
        ending = relay_meet(relay, call, relay->spread);
    *answer = relay_area(relay, 0, parity ^ 1);
    return ending;
}

/* Whether all ranks make the same call, and where data goes along give as much of it; else some have not sent theirs. */
static Ending relay_same_call(const Relay *relay, const unsigned char *records, const uint64_t about[RECORD_WORDS], const Load *load)
{
    uint64_t theirs[WIRE_RECORD_NBYTES / 8], balance = 0;
    bool apart = false;
    for (int rank = 0; rank < relay->size; rank++) {
        memcpy(theirs, records + WIRE_RECORD_NBYTES * (size_t)rank, sizeof theirs);
        if (theirs[SEQUENCE] != about[SEQUENCE] || theirs[DIGEST] != about[DIGEST])
            return UNLIKE;
        apart = apart || (load->manner != NOTHING && theirs[COUNT] != about[COUNT]);
        balance += theirs[SENT] - theirs[RECEIVED];
    }
    if (balance != 0)
        return UNLIKE;
    return apart ? APART : DONE;
}

static Ending relay_carry_out(Relay *relay, Call *call, const uint64_t about[RECORD_WORDS], const Load *load, unsigned char *records)
{
    const unsigned char *answer;
    Ending ending = relay_exchange(relay, call, about, load, &answer);
    if (ending != DONE)
        return ending;
    if (records != NULL) {
        memcpy(records, answer, WIRE_RECORD_NBYTES * (size_t)relay->size);
        return DONE;
    }
    ending = relay_same_call(relay, answer, about, load);
    if (ending != DONE)
        return ending;
    PyThreadState *let_go = relay_let_go(load);
    relay_read(relay, answer + WIRE_RECORD_NBYTES * (size_t)relay->size, load);
    relay_take_back(let_go);
    return DONE;
}

Ending relay_run(Relay *relay, Call *call, const uint64_t about[RECORD_WORDS], const Given *given, unsigned char *records)
{
    Load load;
    relay_load(relay, given, &load); /* which has been looked at before */
    call->board = relay->board;
    call->holds = true;
    if (relay->board != NULL && !board_enter(relay->board))
        return BROKEN;
    Ending ending = relay_carry_out(relay, call, about, &load, records);
    if (relay->board != NULL)
        board_leave(relay->board);
    relay_note_waits(relay, 0);
    return ending;
}

void relay_note_waits(Relay *relay, int64_t elsewhere_ns)
{
    int64_t here_ns = relay->board == NULL ? 0 : relay->board->patience.waited_ns, there_ns = relay->wire == NULL ? 0 : relay->wire->waited_ns;
    relay->elsewhere_ns += elsewhere_ns;
    relay->waited_ns = here_ns + there_ns + relay->elsewhere_ns;
}
