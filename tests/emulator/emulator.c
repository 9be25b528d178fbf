/* A path between two network namespaces: rate, drop-tail queue, delay and random loss, for each direction.
 *
 *     cc -O2 -pthread -o emulator emulator.c
 *     emulator --left NAMESPACE --right NAMESPACE [--device emu0] [--mtu 1500] [--grain-us 40] [--fifo 10]
 *              [--interval-ms 0] [--seconds 3600] --forward KEY=VALUE,... --back KEY=VALUE,...
 *
 * NAMESPACE is a file such as /run/netns/sender. In each namespace the program creates (or opens) a TUN
 * device and reads and writes whole IP packets. Forward is left to right. The keys of a direction:
 *
 *     rate=BITS        bit/s of the link; 0 is without limit
 *     delay_us=N       one-way delay behind the link
 *     packets=N        longest queue in packets, the one in service among them; 0 is without limit
 *     bytes=N          longest queue in bytes, the same way; 0 is without limit
 *     loss=SHARE       random loss: share of packets, 0 to 1
 *     seed=N           seed of the random loss
 *
 * A packet passes these stages in this order: queue, link, random loss, delay, out. A full drop-tail queue drops the
 * arriving packet. The link takes IP bytes * 8 / rate for a packet, without framing. Random loss is behind the
 * bottleneck: a lost packet has used the link already and does not shorten the queue.
 *
 * All stages together form a FIFO. Each packet has two times: departure from the link, and delivery. Both are known
 * on arrival, so no stage is simulated step by step, and errors of a late thread do not accumulate.
 *
 * One thread serves each direction. While packets move, the thread sleeps one grain, then reads all arrivals and writes
 * all due packets. Otherwise the thread waits for a packet. `late_us` is the lateness of the write of a packet. A write
 * runs the network stack of the receiving host; `host_us` is its duration. `own_late_us` is the lateness without that
 * work of hosts: exact after a pause, an upper bound within a row of late packets. `look_us` is the time since the
 * previous check for arrivals when an arrival is found. A busy machine increases all of these.
 *
 * The kernel segments large packets to 1500 bytes before TUN receives them, so each packet is serialised singly.
 *
 * Standard output has a line of JSON when both directions are ready, one per interval if requested, and one at the end
 * (SIGTERM, SIGINT, or --seconds). Exit code 0, or 1 with a line on standard error.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { TCP, UDP, OTHER, KINDS };
static const char *const KIND_NAMES[KINDS] = {"tcp", "udp", "other"};
#define BINS 10000               /* of a histogram, one microsecond each; the last bin counts all above */
#define SLOTS (1u << 17)         /* packets that one direction can hold */
#define ROOM (64u << 20)         /* bytes that one direction can hold; memory is committed on use */
#define LONGEST_PACKET 65536

/* Counters have one writer and may be read concurrently by the printing thread. */
typedef _Atomic uint64_t counter;
static void add(counter *c, uint64_t n) {
    atomic_store_explicit(c, atomic_load_explicit(c, memory_order_relaxed) + n, memory_order_relaxed);
}
static void raise_to(counter *c, uint64_t n) {
    if (n > atomic_load_explicit(c, memory_order_relaxed)) atomic_store_explicit(c, n, memory_order_relaxed);
}

struct histogram {
    counter bin[BINS], count, most_ns;
};

/* Counters of the packets of one kind. */
struct counts {
    counter in, in_bytes, queue_drops, random_drops, out, out_bytes;
};

struct packet {
    uint64_t left_link_ns, out_ns; /* departure from the link, delivery */
    uint32_t at, bytes;            /* offset in the room */
    uint8_t kind, lost;
};

struct direction {
    const char *name;
    int from, to; /* TUN descriptors */
    uint64_t rate_bps, delay_ns, most_packets, most_bytes, seed;
    double loss;
    /* FIFO: packets head..link are behind the link, link..tail are in its queue. Indices only grow. */
    struct packet *line;
    uint64_t head, link, tail, queued_bytes;
    unsigned char *room;
    uint32_t room_at;      /* offset of the next packet */
    uint64_t link_free_ns; /* when the link has sent all accepted packets */
    uint64_t remainder;    /* of the division by the rate, so that rounding errors do not accumulate */
    uint64_t random;
    struct counts kinds[KINDS];
    counter longest_packets, longest_bytes, wait_ns, waited, overruns, write_errors;
    uint64_t wrote_ns, own_late_ns; /* end of the last write, and its lateness without the hosts' work */
    struct histogram late, own_late, host, look;
};

static atomic_int stopping;
static uint64_t grain_ns = 40000;
static int fifo_priority;

static void fail(const char *what) {
    fprintf(stderr, "emulator: %s: %s\n", what, errno ? strerror(errno) : "not understood");
    exit(1);
}

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void note(struct histogram *h, uint64_t ns) {
    uint64_t us = ns / 1000;
    add(&h->bin[us < BINS ? us : BINS - 1], 1);
    add(&h->count, 1);
    raise_to(&h->most_ns, ns);
}

/* SplitMix64: one number per packet that the queue accepts, so a seed gives the same losses in each run. */
static uint64_t draw(uint64_t *state) {
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static int kind_of(const unsigned char *p, uint32_t bytes) {
    int protocol = -1;
    if (bytes >= 20 && p[0] >> 4 == 4) protocol = p[9];
    if (bytes >= 40 && p[0] >> 4 == 6) protocol = p[6];
    return protocol == 6 ? TCP : protocol == 17 ? UDP : OTHER;
}

/* Removes packets that have left the link from the queue. */
static void serve_link(struct direction *d, uint64_t now) {
    while (d->link < d->tail && d->line[d->link % SLOTS].left_link_ns <= now) {
        d->queued_bytes -= d->line[d->link % SLOTS].bytes;
        d->link++;
    }
}

/* Whether the room has LONGEST_PACKET bytes at `room_at`. The room is a ring buffer; no packet crosses its end. */
static int has_room(struct direction *d) {
    if (d->tail - d->head >= SLOTS) return 0;
    if (d->room_at + LONGEST_PACKET > ROOM) d->room_at = 0;
    if (d->head == d->tail) return 1;
    uint32_t oldest = d->line[d->head % SLOTS].at;
    return d->room_at > oldest || oldest - d->room_at > LONGEST_PACKET;
}

/* Handles the packet of `bytes` bytes at `room_at`: drops the packet, or computes its times and appends it to the FIFO. */
static void arrive(struct direction *d, uint32_t bytes, uint64_t now) {
    unsigned char *content = d->room + d->room_at;
    int kind = kind_of(content, bytes);
    struct counts *c = &d->kinds[kind];
    add(&c->in, 1);
    add(&c->in_bytes, bytes);
    serve_link(d, now);
    uint64_t packets = d->tail - d->link + 1;
    if ((d->most_packets && packets > d->most_packets) || (d->most_bytes && d->queued_bytes + bytes > d->most_bytes)) {
        add(&c->queue_drops, 1);
        return;
    }
    if (d->link_free_ns < now) {
        d->link_free_ns = now;
        d->remainder = 0;
    }
    add(&d->wait_ns, d->link_free_ns - now);
    add(&d->waited, 1);
    if (d->rate_bps) {
        uint64_t work = (uint64_t)bytes * 8 * 1000000000u + d->remainder;
        d->link_free_ns += work / d->rate_bps;
        d->remainder = work % d->rate_bps;
    }
    int lost = (double)(draw(&d->random) >> 11) * 0x1p-53 < d->loss;
    d->line[d->tail++ % SLOTS] = (struct packet){
        .left_link_ns = d->link_free_ns, .out_ns = d->link_free_ns + d->delay_ns,
        .at = d->room_at, .bytes = bytes, .kind = (uint8_t)kind, .lost = (uint8_t)lost};
    d->room_at += (bytes + 63) & ~63u;
    d->queued_bytes += bytes;
    raise_to(&d->longest_packets, packets);
    raise_to(&d->longest_bytes, d->queued_bytes);
}

/* Reads at most one batch of arrivals, so that due packets do not wait. Returns the number of packets. */
static unsigned take(struct direction *d, uint64_t last_look) {
    unsigned taken = 0;
    while (taken < 64) {
        if (!has_room(d)) {
            add(&d->overruns, 1); /* the packet stays in the device, and the run is invalid */
            break;
        }
        ssize_t bytes = read(d->from, d->room + d->room_at, LONGEST_PACKET);
        if (bytes <= 0) break;
        uint64_t now = now_ns();
        if (taken++ == 0) note(&d->look, now - last_look);
        arrive(d, (uint32_t)bytes, now);
    }
    return taken;
}

/* Writes due packets. A write runs the other host's network stack, so the clock is read after each write. */
static unsigned give(struct direction *d) {
    unsigned given = 0;
    uint64_t now = now_ns();
    for (; given < 64 && d->head < d->tail; given++, d->head++) {
        struct packet *p = &d->line[d->head % SLOTS];
        if (p->out_ns > now) break;
        serve_link(d, now); /* keeps link >= head */
        struct counts *c = &d->kinds[p->kind];
        if (p->lost) {
            add(&c->random_drops, 1);
            continue;
        }
        uint64_t late = now - p->out_ns, own = late;
        /* Due during the last write: own lateness grows only by the time since that write. */
        if (p->out_ns <= d->wrote_ns && d->own_late_ns + (now - d->wrote_ns) < late) own = d->own_late_ns + (now - d->wrote_ns);
        d->own_late_ns = own;
        note(&d->late, late);
        note(&d->own_late, own);
        ssize_t written = write(d->to, d->room + p->at, p->bytes);
        d->wrote_ns = now_ns();
        note(&d->host, d->wrote_ns - now);
        now = d->wrote_ns;
        if (written != (ssize_t)p->bytes) {
            add(&d->write_errors, 1);
            continue;
        }
        add(&c->out, 1);
        add(&c->out_bytes, p->bytes);
    }
    return given;
}

static void *run(void *argument) {
    struct direction *d = argument;
    if (fifo_priority) {
        struct sched_param s = {.sched_priority = fifo_priority};
        if ((errno = pthread_setschedparam(pthread_self(), SCHED_FIFO, &s))) fail("SCHED_FIFO");
    }
    prctl(PR_SET_TIMERSLACK, 1UL);
    uint64_t looked = now_ns();
    while (!stopping) {
        uint64_t look = now_ns();
        unsigned taken = take(d, looked);
        looked = look;
        unsigned given = give(d);
        if (taken == 64 || given == 64) continue;
        uint64_t now = now_ns(), wait = 100000000; /* then checks for the stop flag */
        if (d->head < d->tail) {
            uint64_t next = d->line[d->head % SLOTS].out_ns;
            wait = next > now ? next - now : 0;
        }
        if (taken || given || wait < grain_ns) {
            struct timespec t = {.tv_nsec = (long)grain_ns};
            clock_nanosleep(CLOCK_MONOTONIC, 0, &t, NULL);
        } else {
            struct pollfd p = {.fd = d->from, .events = POLLIN};
            if (wait > 100000000) wait = 100000000;
            struct timespec t = {.tv_nsec = (long)wait};
            ppoll(&p, 1, &t, NULL);
            looked = now_ns(); /* poll() was watching all the time */
        }
    }
    return NULL;
}

/* Returns the quantile `share` of all values, in microseconds. */
static uint64_t quantile_us(struct histogram *h, double share) {
    uint64_t target = (uint64_t)(share * (double)h->count), sum = 0;
    for (unsigned i = 0; i < BINS; i++)
        if ((sum += h->bin[i]) >= target && sum) return i + 1;
    return 0;
}

static void print_histogram(const char *name, struct histogram *h) {
    printf(",\"%s\":{\"count\":%lu,\"p50\":%lu,\"p99\":%lu,\"p999\":%lu,\"most\":%lu}", name, h->count,
           quantile_us(h, 0.5), quantile_us(h, 0.99), quantile_us(h, 0.999), h->most_ns / 1000);
}

static void print_direction(struct direction *d, int all) {
    printf(",\"%s\":{", d->name);
    for (int k = 0; k < KINDS; k++) {
        struct counts *c = &d->kinds[k];
        printf("\"%s\":{\"in\":%lu,\"in_bytes\":%lu,\"queue_drops\":%lu,\"random_drops\":%lu,\"out\":%lu,\"out_bytes\":%lu},",
               KIND_NAMES[k], c->in, c->in_bytes, c->queue_drops, c->random_drops, c->out, c->out_bytes);
    }
    printf("\"longest_packets\":%lu,\"longest_bytes\":%lu,\"mean_wait_us\":%lu,\"overruns\":%lu,\"write_errors\":%lu",
           d->longest_packets, d->longest_bytes, d->waited ? d->wait_ns / d->waited / 1000 : 0, d->overruns, d->write_errors);
    if (all) {
        printf(",\"in_line\":%lu", d->tail - d->head);
        print_histogram("late_us", &d->late);
        print_histogram("own_late_us", &d->own_late);
        print_histogram("host_us", &d->host);
        print_histogram("look_us", &d->look);
    }
    printf("}");
}

/* Opens a TUN device in the namespace `path`; the descriptor stays valid when the thread returns to its own namespace. */
static int open_tun(const char *path, const char *device) {
    int home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC), there = open(path, O_RDONLY | O_CLOEXEC);
    if (home < 0 || there < 0 || setns(there, CLONE_NEWNET)) fail(path);
    int tun = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    struct ifreq request = {.ifr_flags = IFF_TUN | IFF_NO_PI};
    snprintf(request.ifr_name, sizeof request.ifr_name, "%s", device);
    if (tun < 0 || ioctl(tun, TUNSETIFF, &request)) fail("TUN device");
    if (setns(home, CLONE_NEWNET)) fail("own namespace");
    close(home);
    close(there);
    return tun;
}

static void read_keys(struct direction *d, char *text) {
    char *const keys[] = {"rate", "delay_us", "packets", "bytes", "loss", "seed", NULL};
    for (char *value; *text;) {
        int key = getsubopt(&text, keys, &value);
        char *end = value;
        double number = value ? strtod(value, &end) : -1;
        if (key < 0 || number < 0 || end == value || *end) errno = 0, fail(d->name);
        switch (key) {
        case 0: d->rate_bps = (uint64_t)number; break;
        case 1: d->delay_ns = (uint64_t)(number * 1000); break;
        case 2: d->most_packets = (uint64_t)number; break;
        case 3: d->most_bytes = (uint64_t)number; break;
        case 4: d->loss = number; break;
        case 5: d->random = d->seed = (uint64_t)number; break;
        }
    }
    d->line = calloc(SLOTS, sizeof *d->line);
    d->room = mmap(NULL, ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (!d->line || d->room == MAP_FAILED) fail("memory");
}

int main(int count, char **words) {
    static struct direction ways[2] = {{.name = "forward"}, {.name = "back"}};
    const char *left = NULL, *right = NULL, *device = "emu0";
    uint64_t interval_ms = 0, seconds = 3600;
    for (int i = 1; i < count; i += 2) {
        char *word = words[i], *value = i + 1 < count ? words[i + 1] : NULL;
        if (!value) errno = 0, fail(word);
        if (!strcmp(word, "--left")) left = value;
        else if (!strcmp(word, "--right")) right = value;
        else if (!strcmp(word, "--device")) device = value;
        else if (!strcmp(word, "--grain-us")) grain_ns = strtoull(value, NULL, 10) * 1000;
        else if (!strcmp(word, "--fifo")) fifo_priority = atoi(value);
        else if (!strcmp(word, "--interval-ms")) interval_ms = strtoull(value, NULL, 10);
        else if (!strcmp(word, "--seconds")) seconds = strtoull(value, NULL, 10);
        else if (!strcmp(word, "--forward")) read_keys(&ways[0], value);
        else if (!strcmp(word, "--back")) read_keys(&ways[1], value);
        else errno = 0, fail(word);
    }
    if (!left || !right || !ways[0].line || !ways[1].line) errno = 0, fail("--left, --right, --forward, --back");

    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGINT);
    sigprocmask(SIG_BLOCK, &ends, NULL);
    prctl(PR_SET_PDEATHSIG, SIGTERM);

    ways[0].from = ways[1].to = open_tun(left, device);
    ways[0].to = ways[1].from = open_tun(right, device);
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        if ((errno = pthread_create(&threads[i], NULL, run, &ways[i]))) fail("thread");
    uint64_t start = now_ns(), end = start + seconds * 1000000000u, next = start;
    printf("{\"event\":\"ready\"}\n");
    fflush(stdout);
    for (;;) {
        next = interval_ms && next + interval_ms * 1000000 < end ? next + interval_ms * 1000000 : end;
        uint64_t now = now_ns(), wait = next > now ? next - now : 0;
        struct timespec t = {.tv_sec = (time_t)(wait / 1000000000u), .tv_nsec = (long)(wait % 1000000000u)};
        int signal = sigtimedwait(&ends, NULL, &t);
        if (signal < 0 && errno == EINTR) continue;
        int last = signal > 0 || next >= end;
        if (last) {
            stopping = 1;
            for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
        }
        printf("{\"event\":\"%s\",\"t_s\":%.3f", last ? "end" : "interval", (double)(now_ns() - start) / 1e9);
        for (int i = 0; i < 2; i++) print_direction(&ways[i], last);
        printf("}\n");
        fflush(stdout);
        if (last) return 0;
    }
}
