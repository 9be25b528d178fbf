// Sends over one UDT connection for some time: `sender ADDRESS PORT SECONDS FILE` writes a line for each
// 100 ms: seconds, period in us, window and flight in packets, round trip in ms, estimate of the path in Mb/s,
// and packets sent, lost and sent again until then.
#include <arpa/inet.h>
#include <udt/udt.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <thread>
#include <vector>

#include "options.h"

int main(int argc, char* argv[])
{
    if (argc != 5)
    {
        std::fprintf(stderr, "usage: sender ADDRESS PORT SECONDS FILE\n");
        return 2;
    }
    UDT::startup();
    const UDTSOCKET connection = UDT::socket(AF_INET, SOCK_STREAM, 0);
    set_options(connection);
    // What is still in the buffer when time is up does not matter.
    const linger none = {1, 0};
    UDT::setsockopt(connection, 0, UDT_LINGER, &none, sizeof none);
    sockaddr_in there = address(argv[1], argv[2]);
    // The receiver may need a moment to listen; UDT repeats its handshake for 3 s.
    if (UDT::connect(connection, reinterpret_cast<sockaddr*>(&there), sizeof there) == UDT::ERROR)
    {
        return failed("connect");
    }
    std::ofstream out(argv[4]);
    const double most = std::atof(argv[3]);
    std::vector<char> buffer(1 << 16);
    const auto began = std::chrono::steady_clock::now();
    double next = 0;
    for (;;)
    {
        const int sent = UDT::send(connection, buffer.data(), buffer.size(), 0);
        const double seconds =
            std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
        if (sent == UDT::ERROR || seconds >= most)
        {
            break;
        }
        UDT::TRACEINFO info;
        if (seconds >= next && UDT::perfmon(connection, &info, false) != UDT::ERROR)
        {
            out << seconds << ' ' << info.usPktSndPeriod << ' ' << info.pktCongestionWindow << ' '
                << info.pktFlightSize << ' ' << info.msRTT << ' ' << info.mbpsBandwidth << ' '
                << info.pktSentTotal << ' ' << info.pktSndLossTotal << ' ' << info.pktRetransTotal << std::endl;
            next = seconds + 0.1;
        }
    }
    UDT::close(connection);
    UDT::cleanup();
    return 0;
}
