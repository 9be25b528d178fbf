// Algorithms of ns-3 3.37 with one difference each taken away, to show that it is the cause of what
// the table marks. README.md says what each is.
#pragma once

#include "ns3/internet-module.h"

namespace ns3
{

/// H-TCP whose growth is counted in segments and for each segment, and whose decrease stays between a
/// half and four fifths, as published: ns-3 adds alpha bytes to an ACK beside one segment a window to
/// every ACK, and keeps the whole window where the delay has not moved.
class TcpHtcpMended : public TcpHtcp
{
  public:
    static TypeId GetTypeId()
    {
        static TypeId type =
            TypeId("ns3::TcpHtcpMended").SetParent<TcpHtcp>().AddConstructor<TcpHtcpMended>();
        return type;
    }

    Ptr<TcpCongestionOps> Fork() override
    {
        return CopyObject<TcpHtcpMended>(this);
    }

    uint32_t GetSsThresh(Ptr<const TcpSocketState> tcb, uint32_t flight) override
    {
        m_kept = double(TcpHtcp::GetSsThresh(tcb, flight)) / std::max(flight, 1U);
        m_kept = std::min(0.8, std::max(0.5, m_kept));
        m_lost = Simulator::Now();
        return std::max(2.0 * tcb->m_segmentSize, m_kept * flight);
    }

  protected:
    void CongestionAvoidance(Ptr<TcpSocketState> tcb, uint32_t segments) override
    {
        const double beyond = (Simulator::Now() - m_lost).GetSeconds() - 1;
        const double f = beyond > 0 ? 1 + 10 * beyond + beyond * beyond / 4 : 1;
        const double alpha = 2 * (1 - m_kept) * f;
        const double segment = tcb->m_segmentSize;
        m_rest += alpha * segments * segment * segment / tcb->m_cWnd.Get();
        tcb->m_cWnd += uint32_t(m_rest);
        m_rest -= uint32_t(m_rest);
    }

  private:
    double m_kept{0.5};
    double m_rest{0};
    Time m_lost;
};

/// HighSpeed TCP by the equations of RFC 3649, section 7: ns-3's table rounds growth up to whole
/// segments, which between windows of 38 and 118 is 2 for what grows from 1 to 2.
class TcpHighSpeedEquations : public TcpHighSpeed
{
  public:
    static TypeId GetTypeId()
    {
        static TypeId type = TypeId("ns3::TcpHighSpeedEquations")
                                 .SetParent<TcpHighSpeed>()
                                 .AddConstructor<TcpHighSpeedEquations>();
        return type;
    }

    Ptr<TcpCongestionOps> Fork() override
    {
        return CopyObject<TcpHighSpeedEquations>(this);
    }

    uint32_t GetSsThresh(Ptr<const TcpSocketState> tcb, uint32_t flight) override
    {
        const double segment = tcb->m_segmentSize;
        return std::max(2.0 * segment, (1 - Decrease(flight / segment)) * flight);
    }

  protected:
    void CongestionAvoidance(Ptr<TcpSocketState> tcb, uint32_t segments) override
    {
        const double segment = tcb->m_segmentSize;
        const double w = tcb->m_cWnd.Get() / segment;
        const double b = Decrease(w);
        const double a = w <= 38 ? 1 : std::max(1.0, 0.078 * std::pow(w, 0.8) * 2 * b / (2 - b));
        m_rest += a * segments * segment / w;
        tcb->m_cWnd += uint32_t(m_rest);
        m_rest -= uint32_t(m_rest);
    }

  private:
    static double Decrease(double w)
    {
        return w <= 38 ? 0.5 : 0.5 - 0.4 * std::log(w / 38) / std::log(83000.0 / 38);
    }

    double m_rest{0};
};

/// CUBIC that grows at least as Reno would [RFC9438 §4.3]: ns-3 3.37 has no such region.
class TcpCubicFriendly : public TcpCubic
{
  public:
    static TypeId GetTypeId()
    {
        static TypeId type =
            TypeId("ns3::TcpCubicFriendly").SetParent<TcpCubic>().AddConstructor<TcpCubicFriendly>();
        return type;
    }

    Ptr<TcpCongestionOps> Fork() override
    {
        return CopyObject<TcpCubicFriendly>(this);
    }

    uint32_t GetSsThresh(Ptr<const TcpSocketState> tcb, uint32_t flight) override
    {
        m_prior = tcb->m_cWnd;
        const uint32_t kept = TcpCubic::GetSsThresh(tcb, flight);
        m_reno = kept;
        return kept;
    }

    void IncreaseWindow(Ptr<TcpSocketState> tcb, uint32_t segments) override
    {
        const bool is_avoiding = tcb->m_cWnd >= tcb->m_ssThresh;
        const double before = tcb->m_cWnd.Get();
        TcpCubic::IncreaseWindow(tcb, segments);
        if (is_avoiding && m_reno > 0)
        {
            const double segment = tcb->m_segmentSize;
            m_reno += (m_reno < m_prior ? 3 * 0.3 / 1.7 : 1) * segments * segment * segment / before;
            tcb->m_cWnd = std::max(tcb->m_cWnd.Get(), uint32_t(m_reno));
        }
    }

  private:
    double m_reno{0};
    double m_prior{0};
};

/// TCP-LP as published: smallest and largest delay are those of the whole connection, slow start only
/// measures them, an ACK that was held back tells no delay, and delays are not whole milliseconds.
/// ns-3's, like Linux's, forgets smallest and largest at each sign of congestion.
class TcpLpPublished : public TcpLinuxReno
{
  public:
    static TypeId GetTypeId()
    {
        static TypeId type =
            TypeId("ns3::TcpLpPublished").SetParent<TcpLinuxReno>().AddConstructor<TcpLpPublished>();
        return type;
    }

    Ptr<TcpCongestionOps> Fork() override
    {
        return CopyObject<TcpLpPublished>(this);
    }

    void IncreaseWindow(Ptr<TcpSocketState> tcb, uint32_t segments) override
    {
        if (tcb->m_cWnd < tcb->m_ssThresh || Simulator::Now() >= m_until)
        {
            TcpLinuxReno::IncreaseWindow(tcb, segments);
        }
    }

    void PktsAcked(Ptr<TcpSocketState> tcb, uint32_t, const Time& rtt) override
    {
        // The sample, from two averages: mean += (sample - mean) / 8.
        const double average = rtt.GetSeconds();
        const double now = m_average > 0 ? 8 * average - 7 * m_average : average;
        m_average = average;
        if (tcb->m_congState != TcpSocketState::CA_OPEN)
        {
            m_last = m_mean = 0;
            return;
        }
        const double delay = std::min(now, m_last);
        const bool is_known = m_last > 0;
        m_last = now;
        // What was sent before the last cut says nothing of what the cut did.
        const bool is_stale = Simulator::Now() - Seconds(now) <= m_cut;
        if (!is_known || is_stale || tcb->m_cWnd < 16 * tcb->m_segmentSize)
        {
            return;
        }
        m_least = std::min(m_least, delay);
        m_most = std::max(m_most, delay);
        m_mean = m_mean > 0 ? m_mean + (delay - m_mean) / 8 : delay;
        if (tcb->m_cWnd < tcb->m_ssThresh)
        {
            return;
        }
        const bool is_early = m_mean > m_least + 0.15 * (m_most - m_least);
        m_was_clear |= !is_early;
        if (is_early)
        {
            const bool is_again = m_was_clear && Simulator::Now() < m_until;
            tcb->m_cWnd = is_again ? tcb->m_segmentSize : tcb->m_cWnd.Get() / 2;
            tcb->m_ssThresh = tcb->m_cWnd;
            m_until = Simulator::Now() + 3 * rtt;
            m_cut = Simulator::Now();
            m_last = m_mean = 0;
        }
    }

  private:
    double m_average{0};
    double m_last{0};
    double m_mean{0};
    double m_least{1e9};
    double m_most{0};
    bool m_was_clear{false};
    Time m_until;
    Time m_cut;
};

/// BBR with samples that begin when their packet left: ns-3's TcpRateLinux takes the time since the
/// sample before, which makes every interval longer by the time between two ACKs.
class TcpBbrMended : public TcpBbr
{
  public:
    static TypeId GetTypeId()
    {
        static TypeId type =
            TypeId("ns3::TcpBbrMended").SetParent<TcpBbr>().AddConstructor<TcpBbrMended>();
        return type;
    }

    Ptr<TcpCongestionOps> Fork() override
    {
        return CopyObject<TcpBbrMended>(this);
    }

    void CongControl(Ptr<TcpSocketState> tcb,
                     const TcpRateOps::TcpRateConnection& connection,
                     const TcpRateOps::TcpRateSample& sample) override
    {
        TcpRateOps::TcpRateSample mended = sample;
        if (!sample.m_priorTime.IsZero() && sample.m_delivered > 0)
        {
            const Time arrival = Simulator::Now() - sample.m_priorTime;
            mended.m_interval = std::max(sample.m_sendElapsed, arrival);
            mended.m_deliveryRate =
                DataRate(uint64_t(sample.m_delivered * 8.0 / mended.m_interval.GetSeconds()));
        }
        TcpBbr::CongControl(tcb, connection, mended);
    }
};

NS_OBJECT_ENSURE_REGISTERED(TcpHtcpMended);
NS_OBJECT_ENSURE_REGISTERED(TcpHighSpeedEquations);
NS_OBJECT_ENSURE_REGISTERED(TcpCubicFriendly);
NS_OBJECT_ENSURE_REGISTERED(TcpLpPublished);
NS_OBJECT_ENSURE_REGISTERED(TcpBbrMended);

} // namespace ns3
