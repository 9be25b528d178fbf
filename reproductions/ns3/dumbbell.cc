// One scenario in ns-3: N flows over one bottleneck; prints one line of JSON.
//
//   N senders ══ drop-tail queue ─ rate ─ rtt/2 ─ loss ══ N receivers      and rate, rtt/2 on the way back
//
// A dumbbell with access links that take no time, as in our simulator: the senders share one node and
// the receivers another. The queue is that of the device, with no traffic control above it; the packet
// in the serialiser is not counted. Losses come behind the serialiser, on the way there alone. Segments
// are 1460 bytes behind 40 bytes of headers and 2 of PPP; with timestamps the headers are 52.
#include "ns3/applications-module.h"
#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"
#include "ns3/traffic-control-module.h"

#include "mended.h"

#include <fstream>
#include <iostream>
#include <sstream>
#include <vector>

using namespace ns3;

namespace
{

std::vector<Ptr<PacketSink>> g_sinks;
std::vector<uint64_t> g_before;

// Mean length of the queue since the warm-up.
double g_area = 0;
uint32_t g_length = 0;
Time g_changed;
uint64_t g_drops = 0;
Time g_warmup;
std::ofstream g_trace;

void
QueueChanged(uint32_t, uint32_t now)
{
    if (Simulator::Now() >= g_warmup)
    {
        g_area += g_length * (Simulator::Now() - std::max(g_changed, g_warmup)).GetSeconds();
    }
    g_changed = Simulator::Now();
    g_length = now;
}

void
Dropped(Ptr<const Packet>)
{
    g_drops += Simulator::Now() >= g_warmup;
}

void
WindowChanged(uint32_t, uint32_t now)
{
    g_trace << Simulator::Now().GetSeconds() << ' ' << now / 1460.0 << '\n';
}

void
TraceWindow()
{
    Config::ConnectWithoutContext("/NodeList/0/$ns3::TcpL4Protocol/SocketList/0/CongestionWindow",
                                  MakeCallback(&WindowChanged));
}

void
EndWarmup()
{
    for (auto& sink : g_sinks)
    {
        g_before.push_back(sink->GetTotalRx());
    }
}

} // namespace

int
main(int argc, char* argv[])
{
    std::string cc = "TcpNewReno";
    double rate = 100;
    double rtt = 20;
    uint32_t queue = 167;
    double loss = 0;
    std::string starts = "0";
    double duration = 60;
    double warmup = 10;
    uint32_t seed = 1;
    uint32_t delack = 2;
    bool timestamps = false;
    std::string trace;

    CommandLine cmd(__FILE__);
    cmd.AddValue("cc", "type of the TCP, without ns3::", cc);
    cmd.AddValue("rate", "of the bottleneck, Mb/s", rate);
    cmd.AddValue("rtt", "base round trip, ms", rtt);
    cmd.AddValue("queue", "packets", queue);
    cmd.AddValue("loss", "chance that a data packet is lost", loss);
    cmd.AddValue("starts", "start of each flow in seconds, with commas", starts);
    cmd.AddValue("duration", "s", duration);
    cmd.AddValue("warmup", "s", warmup);
    cmd.AddValue("seed", "run of the random numbers", seed);
    cmd.AddValue("delack", "segments to an ACK", delack);
    cmd.AddValue("timestamps", "whether segments carry them", timestamps);
    cmd.AddValue("trace", "file for time and window of the first flow", trace);
    cmd.Parse(argc, argv);
    RngSeedManager::SetRun(seed);
    g_warmup = Seconds(warmup);

    Config::SetDefault("ns3::TcpL4Protocol::SocketType",
                       TypeIdValue(TypeId::LookupByName("ns3::" + cc)));
    Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(1460));
    Config::SetDefault("ns3::TcpSocket::InitialCwnd", UintegerValue(10));
    Config::SetDefault("ns3::TcpSocket::DelAckCount", UintegerValue(delack));
    Config::SetDefault("ns3::TcpSocket::DelAckTimeout", TimeValue(MilliSeconds(40)));
    // Never what binds: four times what path and queue hold. (Larger ones make ns-3 slow.)
    const uint32_t buffer = std::max(1e6, 4 * (rate * rtt * 1e3 / 8 + queue * 1500.0));
    Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(buffer));
    Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(buffer));
    // At least 200 ms above the round trip with a full queue, as Linux and our hosts have it.
    const double full = rtt + queue * 1500 * 8 / rate / 1e3;
    Config::SetDefault("ns3::TcpSocketBase::MinRto", TimeValue(MilliSeconds(200 + full)));
    Config::SetDefault("ns3::TcpSocketBase::Timestamp", BooleanValue(timestamps));

    std::vector<double> start;
    std::istringstream list(starts);
    for (std::string one; std::getline(list, one, ',');)
    {
        start.push_back(std::stod(one));
    }

    NodeContainer ends(2);
    InternetStackHelper stack;
    stack.InstallAll();
    PointToPointHelper link;
    link.SetDeviceAttribute("DataRate", DataRateValue(DataRate(uint64_t(rate * 1e6))));
    link.SetChannelAttribute("Delay", TimeValue(NanoSeconds(int64_t(rtt * 5e5))));
    link.SetQueue("ns3::DropTailQueue", "MaxSize", StringValue(std::to_string(queue) + "p"));
    NetDeviceContainer bottleneck = link.Install(ends);
    Ipv4AddressHelper address("10.0.0.0", "255.255.255.0");
    const Ipv4Address far = address.Assign(bottleneck).GetAddress(1);
    // Assign has put a queue discipline above each device.
    TrafficControlHelper().Uninstall(bottleneck);

    if (loss > 0)
    {
        Ptr<RateErrorModel> errors = CreateObject<RateErrorModel>();
        errors->SetUnit(RateErrorModel::ERROR_UNIT_PACKET);
        errors->SetRate(loss);
        bottleneck.Get(1)->SetAttribute("ReceiveErrorModel", PointerValue(errors));
        bottleneck.Get(1)->TraceConnectWithoutContext("PhyRxDrop", MakeCallback(&Dropped));
    }
    Ptr<Queue<Packet>> waiting = DynamicCast<PointToPointNetDevice>(bottleneck.Get(0))->GetQueue();
    waiting->TraceConnectWithoutContext("PacketsInQueue", MakeCallback(&QueueChanged));
    // A full device queue stops its netdevice queue, and the layer above then drops.
    ends.Get(0)->GetObject<TrafficControlLayer>()->TraceConnectWithoutContext(
        "TcDrop",
        MakeCallback(&Dropped));

    for (uint32_t i = 0; i < start.size(); i++)
    {
        const InetSocketAddress target(far, 5000 + i);
        ApplicationContainer sink =
            PacketSinkHelper("ns3::TcpSocketFactory", target).Install(ends.Get(1));
        sink.Start(Seconds(0));
        g_sinks.push_back(DynamicCast<PacketSink>(sink.Get(0)));
        BulkSendHelper bulk("ns3::TcpSocketFactory", target);
        bulk.SetAttribute("SendSize", UintegerValue(1460));
        bulk.Install(ends.Get(0)).Start(Seconds(start[i]));
    }
    if (!trace.empty())
    {
        g_trace.open(trace);
        Simulator::Schedule(Seconds(start[0] + 0.001), &TraceWindow);
    }
    Simulator::Schedule(g_warmup, &EndWarmup);
    Simulator::Stop(Seconds(duration));
    Simulator::Run();
    QueueChanged(0, 0);

    const double seconds = duration - warmup;
    std::cout << "{\"goodput_mbps\":[";
    for (size_t i = 0; i < g_sinks.size(); i++)
    {
        std::cout << (i ? "," : "")
                  << (g_sinks[i]->GetTotalRx() - g_before[i]) * 8 / seconds / 1e6;
    }
    std::cout << "],\"queue_packets\":" << g_area / seconds << ",\"drops\":" << g_drops << "}\n";
    Simulator::Destroy();
    return 0;
}
