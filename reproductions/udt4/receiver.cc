// Takes one UDT connection and counts what arrives: `receiver ADDRESS PORT FILE` writes a line for each
// 100 ms, seconds since the first byte and bytes until then.
#include <arpa/inet.h>
#include <udt/udt.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <vector>

#include "options.h"

int main(int argc, char* argv[])
{
    if (argc != 4)
    {
        std::fprintf(stderr, "usage: receiver ADDRESS PORT FILE\n");
        return 2;
    }
    UDT::startup();
    const UDTSOCKET listener = UDT::socket(AF_INET, SOCK_STREAM, 0);
    set_options(listener);
    sockaddr_in here = address(argv[1], argv[2]);
    if (UDT::bind(listener, reinterpret_cast<sockaddr*>(&here), sizeof here) == UDT::ERROR ||
        UDT::listen(listener, 1) == UDT::ERROR)
    {
        return failed("listen");
    }
    sockaddr_in peer = {};
    int length = sizeof peer;
    const UDTSOCKET connection = UDT::accept(listener, reinterpret_cast<sockaddr*>(&peer), &length);
    if (connection == UDT::INVALID_SOCK)
    {
        return failed("accept");
    }
    std::ofstream out(argv[3]);
    std::vector<char> buffer(1 << 20);
    unsigned long long bytes = 0;
    std::chrono::steady_clock::time_point began;
    double next = 0;
    for (;;)
    {
        const int got = UDT::recv(connection, buffer.data(), buffer.size(), 0);
        if (got == UDT::ERROR)
        {
            break;
        }
        const auto now = std::chrono::steady_clock::now();
        if (bytes == 0)
        {
            began = now;
        }
        bytes += got;
        const double seconds = std::chrono::duration<double>(now - began).count();
        if (seconds >= next)
        {
            out << seconds << ' ' << bytes << std::endl;
            next = seconds + 0.1;
        }
    }
    UDT::close(connection);
    UDT::close(listener);
    UDT::cleanup();
    return 0;
}
