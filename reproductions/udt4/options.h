// What both ends set: packets of 1500 bytes with all headers, and room that never binds.
#pragma once

inline void set_options(UDTSOCKET socket)
{
    const int packet = 1500;
    const int window = 25600;
    const int room = 32 << 20;
    const int udp_out = 1 << 20;
    const int udp_in = 8 << 20;
    UDT::setsockopt(socket, 0, UDT_MSS, &packet, sizeof packet);
    UDT::setsockopt(socket, 0, UDT_FC, &window, sizeof window);
    UDT::setsockopt(socket, 0, UDT_SNDBUF, &room, sizeof room);
    UDT::setsockopt(socket, 0, UDT_RCVBUF, &room, sizeof room);
    UDT::setsockopt(socket, 0, UDP_SNDBUF, &udp_out, sizeof udp_out);
    UDT::setsockopt(socket, 0, UDP_RCVBUF, &udp_in, sizeof udp_in);
}

inline sockaddr_in address(const char* host, const char* port)
{
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(std::atoi(port));
    inet_pton(AF_INET, host, &address.sin_addr);
    return address;
}

inline int failed(const char* what)
{
    std::fprintf(stderr, "%s: %s\n", what, UDT::getlasterror().getErrorMessage());
    return 1;
}
