// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * ns-3: PAIRS TCP NewReno flows of BYTES over a dumbbell; see ../simulators.py.
 *
 * Prints CPU seconds of Simulator::Run(), frames that crossed a link, and data
 * packets that receivers got.
 */
#include <cstdio>
#include <cstdlib>
#include <ctime>

#include "ns3/applications-module.h"
#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/point-to-point-module.h"

using namespace ns3;

static uint64_t crossings, received;

static void Crossed(Ptr<const Packet>)
{
    crossings++;
}

static void Received(Ptr<const Packet> packet, const Address &)
{
    received += packet->GetSize();
}

int main(int argc, char **argv)
{
    if (argc != 7)
        return 2;
    uint32_t pairs = atoi(argv[1]);
    uint64_t bytes = strtoull(argv[2], nullptr, 10);
    uint32_t payload = atoi(argv[3]);
    std::string edgeRate = argv[4], neckRate = argv[5];
    uint32_t queue = atoi(argv[6]);

    Config::SetDefault("ns3::TcpL4Protocol::SocketType", TypeIdValue(TcpNewReno::GetTypeId()));
    Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(payload));
    Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(1 << 18));
    Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(1 << 18));
    Config::SetDefault("ns3::TcpSocketBase::MinRto", TimeValue(MilliSeconds(4)));

    PointToPointHelper edge, neck;
    edge.SetDeviceAttribute("DataRate", StringValue(edgeRate));
    edge.SetChannelAttribute("Delay", StringValue("1us"));
    neck.SetDeviceAttribute("DataRate", StringValue(neckRate));
    neck.SetChannelAttribute("Delay", StringValue("10us"));
    std::string limit = std::to_string(queue) + "p";
    neck.SetQueue("ns3::DropTailQueue<Packet>", "MaxSize", StringValue(limit));

    NodeContainer hosts(2 * pairs), routers(2);
    InternetStackHelper().Install(hosts);
    InternetStackHelper().Install(routers);
    NetDeviceContainer middle = neck.Install(routers);
    Ipv4AddressHelper address("10.0.0.0", "255.255.255.0");
    address.Assign(middle);
    std::vector<Ipv4Address> addresses;
    for (uint32_t i = 0; i < 2 * pairs; i++) {
        address.NewNetwork();
        NetDeviceContainer ends = edge.Install(hosts.Get(i), routers.Get(i / pairs));
        addresses.push_back(address.Assign(ends).GetAddress(0));
    }
    Ipv4GlobalRoutingHelper::PopulateRoutingTables();

    for (uint32_t i = 0; i < pairs; i++) {
        BulkSendHelper source("ns3::TcpSocketFactory",
                              InetSocketAddress(addresses[pairs + i], 5000));
        source.SetAttribute("MaxBytes", UintegerValue(bytes));
        source.SetAttribute("SendSize", UintegerValue(64 * 1024));
        source.Install(hosts.Get(i)).Start(Seconds(0));
        PacketSinkHelper sink("ns3::TcpSocketFactory",
                              InetSocketAddress(Ipv4Address::GetAny(), 5000));
        sink.Install(hosts.Get(pairs + i)).Start(Seconds(0));
    }
    Config::ConnectWithoutContext("/NodeList/*/DeviceList/*/$ns3::PointToPointNetDevice/PhyRxEnd",
                                  MakeCallback(&Crossed));
    Config::ConnectWithoutContext("/NodeList/*/ApplicationList/*/$ns3::PacketSink/Rx",
                                  MakeCallback(&Received));
    Simulator::Stop(Seconds(60));

    clock_t begin = clock();
    Simulator::Run();
    double seconds = double(clock() - begin) / CLOCKS_PER_SEC;
    if (received != bytes * pairs) {
        fprintf(stderr, "only %lu bytes were delivered\n", received);
        return 1;
    }
    printf("%.6f %lu %lu\n", seconds, crossings, received / payload);
    Simulator::Destroy();
    return 0;
}
