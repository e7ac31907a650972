// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * htsim: PAIRS TCP (NewReno) flows of BYTES over a dumbbell; see ../simulators.py.
 *
 * Prints CPU seconds of the event loop, frames that crossed a link (a queue and
 * its pipe), and data packets that receivers got.
 */
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <iostream>
#include <sstream>

#include "clock.h"
#include "config.h"
#include "eventlist.h"
#include "network.h"
#include "pipe.h"
#include "queue.h"
#include "tcp.h"

static uint64_t crossings;

class CountingPipe : public Pipe {
  public:
    CountingPipe(simtime_picosec delay, EventList &events) : Pipe(delay, events) {}
    void receivePacket(Packet &packet) override
    {
        crossings++;
        Pipe::receivePacket(packet);
    }
};

/* Lengthens a route by one direction of a link. */
static void via(route_t *route, Queue *queue, Pipe *pipe)
{
    route->push_back(queue);
    route->push_back(pipe);
}

int main(int argc, char **argv)
{
    if (argc != 7)
        return 2;
    int pairs = atoi(argv[1]);
    uint64_t bytes = strtoull(argv[2], nullptr, 10);
    int payload = atoi(argv[3]);
    linkspeed_bps edge = speedFromMbps(uint64_t(atoi(argv[4]))),
                  neck = speedFromMbps(uint64_t(atoi(argv[5])));
    mem_b limit = mem_b(atoi(argv[6])) * payload, deep = mem_b(1) << 30;
    simtime_picosec edge_delay = timeFromUs(uint32_t(1)), neck_delay = timeFromUs(uint32_t(10));
    EventList events;

    events.setEndtime(timeFromSec(60));
    Packet::set_packet_size(payload);
    Queue there(neck, limit, events, nullptr), back(neck, limit, events, nullptr);
    CountingPipe there_pipe(neck_delay, events), back_pipe(neck_delay, events);
    TcpRtxTimerScanner scanner(timeFromMs(4), events);
    std::vector<TcpSrc *> sources;
    std::vector<TcpSink *> sinks;

    for (int i = 0; i < pairs; i++) {
        TcpSrc *source = new TcpSrc(nullptr, nullptr, events);
        TcpSink *sink = new TcpSink();
        route_t *out = new route_t(), *in = new route_t();

        source->setName("source");
        sink->setName("sink");
        source->set_flowsize(bytes);
        scanner.registerTcp(*source);
        via(out, new Queue(edge, deep, events, nullptr), new CountingPipe(edge_delay, events));
        via(out, &there, &there_pipe);
        via(out, new Queue(edge, deep, events, nullptr), new CountingPipe(edge_delay, events));
        out->push_back(sink);
        via(in, new Queue(edge, deep, events, nullptr), new CountingPipe(edge_delay, events));
        via(in, &back, &back_pipe);
        via(in, new Queue(edge, deep, events, nullptr), new CountingPipe(edge_delay, events));
        in->push_back(source);
        source->connect(*out, *in, *sink, simtime_picosec(0));
        sources.push_back(source);
        sinks.push_back(sink);
    }

    clock_t begin = clock();
    uint64_t received = 0;
    for (bool more = true; more && received < bytes * pairs;) {
        for (int i = 0; i < 100000 && more; i++)
            more = events.doNextEvent();
        received = 0;
        for (TcpSink *sink : sinks)
            received += sink->cumulative_ack();
    }
    double seconds = double(clock() - begin) / CLOCKS_PER_SEC;
    if (received < bytes * pairs) {
        fprintf(stderr, "only %lu bytes were delivered\n", received);
        return 1;
    }
    printf("%.6f %lu %lu\n", seconds, crossings, received / payload);
    return 0;
}
